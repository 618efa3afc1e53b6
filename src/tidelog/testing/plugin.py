"""pytest's fixtures `tidelog_broker`, `tidelog_cluster` and `tidelog_topic` (O4).

Found by pytest through the entry point `pytest11`, in every project that has tidelog installed. So
nothing that takes time is imported here before a test asks for a broker.

    session, module ... scope       one cluster of each shape, made whole before each test
    function scope                  a cluster for each test

Tests with a mark `tidelog` get a cluster of the shape that it says. The mark becomes a parameter of
the fixture, so that it counts for fixtures of every scope, and for fixtures of others on top of it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from tidelog.testing import open_clusters
from tidelog.testing.shape import DEFAULT_BROKER_COUNT, Shape

if TYPE_CHECKING:
    from tidelog.testing.running import Broker, Cluster
    from tidelog.testing.shared_clusters import SharedClusters

Scope = Literal["session", "package", "module", "class", "function"]

_SCOPES: Final[tuple[Scope, ...]] = ("session", "package", "module", "class", "function")
_BROKER: Final = "tidelog_broker"
_CLUSTER: Final = "tidelog_cluster"
_TOPIC: Final = "tidelog_topic"
_MARK: Final = "tidelog"
_MARK_ARGUMENTS: Final = frozenset({"brokers", "settings", "network"})
_SHARED: Final = pytest.StashKey[list["SharedClusters"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tidelog", "real brokers for tests")
    group.addoption(
        "--tidelog-scope",
        choices=_SCOPES,
        help="how long a broker or cluster lives; tidelog_scope in the ini file, else session",
    )
    group.addoption(
        "--tidelog-keep-data",
        action="store_true",
        default=None,
        help="leave the data of brokers that were in use when a test failed; tidelog_keep_data",
    )
    parser.addini(
        "tidelog_scope", f"scope of {_BROKER} and {_CLUSTER}: {', '.join(_SCOPES)}", default=None
    )
    parser.addini(
        "tidelog_brokers", f"how many brokers {_CLUSTER} has", default=str(DEFAULT_BROKER_COUNT)
    )
    parser.addini(
        "tidelog_settings", "settings of all brokers, a line name=value for each", type="linelist"
    )
    parser.addini(
        "tidelog_network",
        "whether links can be cut (partition_network)",
        type="bool",
        default=False,
    )
    parser.addini(
        "tidelog_keep_data",
        "whether to leave the data of brokers that were in use when a test failed",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "tidelog(brokers=3, settings={}, network=False): what the brokers of this test are like",
    )
    config.stash[_SHARED] = []
    if config.getoption("tidelog_keep_data") or config.getini("tidelog_keep_data"):
        open_clusters.keep_failed()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a mark `tidelog` the parameter of the fixtures that the test uses."""
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is None:
        return
    if mark.args or not set(mark.kwargs) <= _MARK_ARGUMENTS:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the mark tidelog takes "
            f"{', '.join(sorted(_MARK_ARGUMENTS))} by name, not {mark.args or mark.kwargs}"
        )
    for fixture in (_BROKER, _CLUSTER):
        if fixture in metafunc.fixturenames:
            shape = _shape(metafunc.config, fixture, **mark.kwargs)
            # Part of the test's name only where pytest is too old to leave it out (8.4).
            name = getattr(pytest, "HIDDEN_PARAM", f"{shape.broker_count} brokers")
            metafunc.parametrize(
                fixture, [shape], indirect=True, ids=[name], scope=_scope(fixture, metafunc.config)
            )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the test find its cluster whole, whatever the one before did to it."""
    for each in _shared_by(item):
        each.make_whole()
    open_clusters.begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show what brokers said while a test failed."""
    report = yield
    if report.failed:
        used = _shared_by(item)
        unused = [
            cluster
            for shared in item.config.stash[_SHARED]
            if shared not in used
            for cluster in shared.clusters()
        ]
        report.sections += [("tidelog brokers", story) for story in open_clusters.stories(unused)]
        for shared in used:
            report.sections += [
                ("tidelog data", f"left in {each.folder}") for each in shared.on_test_failed()
            ]
    return report


def _shared_by(item: pytest.Item) -> list["SharedClusters"]:
    """What runs, if the test uses it."""
    used = {_BROKER, _CLUSTER, _TOPIC}.intersection(getattr(item, "fixturenames", ()))
    return item.config.stash[_SHARED] if used else []


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    chosen = config.getoption("tidelog_scope") or config.getini("tidelog_scope") or "session"
    for scope in _SCOPES:
        if scope == chosen:
            return scope
    raise pytest.UsageError(
        f"tidelog_scope, the scope of {fixture_name}, is {chosen!r} but must be one of "
        f"{', '.join(_SCOPES)}"
    )


def _shape(
    config: pytest.Config,
    fixture: str,
    *,
    brokers: int | None = None,
    settings: dict[str, object] | None = None,
    network: bool | None = None,
) -> Shape:
    """What the mark says, on top of what the ini file says."""
    if fixture == _BROKER:
        broker_count = 1
    elif brokers is None:
        broker_count = _broker_count(config)
    else:
        broker_count = brokers
    return Shape.of(
        broker_count,
        {**_ini_settings(config), **(settings or {})},
        has_network=config.getini("tidelog_network") if network is None else network,
    )


def _broker_count(config: pytest.Config) -> int:
    text = config.getini("tidelog_brokers")
    if not text.isdecimal() or int(text) == 0:
        raise pytest.UsageError(f"tidelog_brokers is {text!r} but must be a number of brokers")
    return int(text)


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    settings = {}
    for line in config.getini("tidelog_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"tidelog_settings has {line!r} but needs lines name=value")
        settings[name.strip()] = value.strip()
    return settings


def _shape_of_request(request: pytest.FixtureRequest, fixture: str) -> Shape:
    marked: Shape | None = getattr(request, "param", None)
    return _shape(request.config, fixture) if marked is None else marked


@pytest.fixture(scope=_scope)
def _tidelog_clusters(request: pytest.FixtureRequest) -> Iterator["SharedClusters"]:
    from tidelog.testing.shared_clusters import SharedClusters  # noqa: PLC0415

    shared = SharedClusters()
    request.config.stash[_SHARED].append(shared)
    yield shared
    request.config.stash[_SHARED].remove(shared)
    shared.close()


@pytest.fixture(scope=_scope)
def tidelog_broker(request: pytest.FixtureRequest, _tidelog_clusters: "SharedClusters") -> "Broker":
    """One real broker: `tidelog_broker.bootstrap` is where clients find it."""
    return _tidelog_clusters.broker(_shape_of_request(request, _BROKER))


@pytest.fixture(scope=_scope)
def tidelog_cluster(
    request: pytest.FixtureRequest, _tidelog_clusters: "SharedClusters"
) -> "Cluster":
    """A real cluster of three brokers, or as many as the mark `tidelog` or the ini file says."""
    return _tidelog_clusters.cluster(_shape_of_request(request, _CLUSTER))


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of one partition for this test, on the cluster if the test has one."""
    chosen = _CLUSTER if _CLUSTER in request.fixturenames else _BROKER
    running: Cluster = request.getfixturevalue(chosen)
    topic = running.create_topic()
    yield topic
    running.discard_topic(topic)
