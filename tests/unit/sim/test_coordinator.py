"""Sessions with the simulated coordinator under faults. `tests/contract` has the rest."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from tests.unit.sim.networked import new_network
from tidelog.base.errors import SessionLost
from tidelog.coordination.port import BadVersion, Coordinator, CoordinatorUnavailable, NodeExists
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.process import Process
from tidelog.sim.world import World

T = TypeVar("T")

COORDINATOR = "coordinator"
HOST = "broker-1"
OTHER = "broker-2"
TIMEOUT_S = 6.0
A_WHILE_S = 1.5
TO = (HOST, COORDINATOR)
BACK = (COORDINATOR, HOST)


class Scene:
    """A service, and clients that hold a claim."""

    def __init__(self, world: World, *, notices_death: bool) -> None:
        self.world = world
        self.network = new_network(world)
        self.service = SimulatedCoordinatorService(
            world,
            self.network,
            host=COORDINATOR,
            session_timeout_ms=int(TIMEOUT_S * 1_000),
            notices_death=notices_death,
        )
        self.sessions: dict[str, Coordinator] = {}
        self.lost_at_s: dict[str, float] = {}

    def start(self, host: str) -> Process:
        """A process that claims a node of its own name and waits for the loss of its session."""
        process = self.world.spawn(host, self._claim)
        self.world.run_until(lambda: host in self.sessions, within_s=5)
        return process

    async def _claim(self, process: Process) -> None:
        session = await self.service.connect(process, process.name)
        await session.create(f"/{process.name}", b"", ephemeral=True)
        self.sessions[process.name] = session
        await session.session_lost()
        self.lost_at_s[process.name] = self.world.now_s
        await asyncio.Event().wait()

    def holds(self, host: str) -> bool:
        return self.service.tree.get(f"/{host}") is not None

    def released_at_s(self, host: str) -> float:
        self.world.run_until(lambda: not self.holds(host), within_s=10 * TIMEOUT_S)
        return self.world.now_s

    def call(
        self, process: Process, action: Callable[[Coordinator], Awaitable[object]]
    ) -> list[object]:
        """Begin a call in `process`; its outcome comes to be in the list."""
        outcome: list[object] = []
        session = self.sessions[process.name]

        async def run() -> None:
            try:
                outcome.append(await action(session))
            except (SessionLost, CoordinatorUnavailable, BadVersion, NodeExists) as error:
                outcome.append(error)

        self._kept = process.loop.create_task(run())
        return outcome


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1, lines_max=1_000) as world:
        yield world


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world, notices_death=False)


def test_a_session_lives_as_long_as_its_process_beats(scene: Scene) -> None:
    scene.start(HOST)
    scene.world.run_for(100 * TIMEOUT_S)
    assert scene.holds(HOST)
    assert not scene.lost_at_s


def test_a_killed_process_holds_its_claims_until_the_session_is_over(scene: Scene) -> None:
    process = scene.start(HOST)
    scene.world.run_for(A_WHILE_S)
    process.kill()
    killed_at_s = scene.world.now_s
    assert TIMEOUT_S / 2 < scene.released_at_s(HOST) - killed_at_s <= TIMEOUT_S


def test_the_death_of_a_process_can_be_noticed_at_once(world: World) -> None:
    scene = Scene(world, notices_death=True)
    process = scene.start(HOST)
    process.kill()
    killed_at_s = world.now_s
    assert scene.released_at_s(HOST) - killed_at_s < 0.1


@pytest.mark.parametrize("cuts", [[TO], [BACK], [TO, BACK]], ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_a_client_knows_no_later_than_others_that_its_session_is_over(
    seed: int, cuts: list[tuple[str, str]]
) -> None:
    with World(seed, lines_max=0) as world:
        scene = Scene(world, notices_death=False)
        scene.start(HOST)
        world.run_for(world.random_for("test").random() * TIMEOUT_S)
        for source, target in cuts:
            scene.network.cut(source, target)
        world.run_until(lambda: bool(scene.lost_at_s), within_s=2 * TIMEOUT_S)
        assert scene.holds(HOST)
        assert scene.lost_at_s[HOST] <= scene.released_at_s(HOST)


def test_a_short_cut_costs_no_session(scene: Scene) -> None:
    scene.start(HOST)
    for _ in range(20):
        scene.network.cut_both(HOST, COORDINATOR)
        scene.world.run_for(TIMEOUT_S / 3)
        scene.network.heal_all()
        scene.world.run_for(TIMEOUT_S)
    assert not scene.lost_at_s


def test_calls_over_a_cut_link_fail_after_a_while(scene: Scene) -> None:
    process = scene.start(HOST)
    scene.network.cut(COORDINATOR, HOST)
    outcome = scene.call(process, lambda session: session.create("/a", b""))
    scene.world.run_for(TIMEOUT_S)
    assert isinstance(outcome[0], CoordinatorUnavailable)
    assert scene.service.tree.get("/a") is not None


def test_a_write_that_nobody_knows_of_may_come_late() -> None:
    def comes(seed: int) -> bool:
        with World(seed, lines_max=0) as world:
            scene = Scene(world, notices_death=False)
            process = scene.start(HOST)
            scene.network.cut(HOST, COORDINATOR)
            outcome = scene.call(process, lambda session: session.create("/a", b""))
            world.run_until(lambda: bool(outcome), within_s=TIMEOUT_S)
            assert isinstance(outcome[0], CoordinatorUnavailable)
            assert scene.service.tree.get("/a") is None
            world.run_for(0.1)  # Now the client's next connection waits too.
            scene.network.heal_all()
            world.run_for(A_WHILE_S)
            return scene.service.tree.get("/a") is not None

    assert {comes(seed) for seed in range(20)} == {True, False}


def test_a_stopped_process_finds_its_session_lost(scene: Scene) -> None:
    process = scene.start(HOST)
    process.pause()
    scene.world.run_for(10 * TIMEOUT_S)
    assert not scene.holds(HOST)
    outcome = scene.call(process, lambda session: session.get("/a"))
    process.resume()
    scene.world.run_for(A_WHILE_S)
    assert isinstance(outcome[0], SessionLost)
    assert HOST in scene.lost_at_s


def test_a_session_expired_by_force_is_told_so(scene: Scene) -> None:
    scene.start(HOST)
    scene.start(OTHER)
    scene.service.expire_sessions_of(HOST)
    assert not scene.holds(HOST)
    scene.world.run_for(A_WHILE_S)
    assert list(scene.lost_at_s) == [HOST]
    assert scene.holds(OTHER)


def test_after_a_broken_connection_nobody_knows_what_happened(scene: Scene) -> None:
    process = scene.start(HOST)
    happened: set[bool] = set()
    for number in range(40):
        path = f"/{number}"
        outcome = scene.call(process, lambda session, path=path: session.create(path, b""))  # type: ignore[misc]
        scene.world.run_for(scene.world.random_for(path).random() * 0.002)
        scene.service.break_connections(HOST)
        scene.world.run_for(A_WHILE_S)
        if isinstance(outcome[0], CoordinatorUnavailable):
            happened.add(scene.service.tree.get(path) is not None)
    assert happened == {True, False}
    assert not scene.lost_at_s


def test_answers_can_get_lost_often(scene: Scene) -> None:
    """A counter that is only ever raised by compare-and-set counts what happened."""
    process = scene.start(HOST)
    scene.service.break_often(0.2)

    async def count(session: Coordinator) -> int:
        await retried(lambda: session.ensure("/counter"))
        told = 0
        for _ in range(100):
            node = await retried(lambda: session.get("/counter"))
            assert node is not None
            try:
                await session.set("/counter", b"", expected_version=node.version)
                told += 1
            except CoordinatorUnavailable:
                continue
        return told

    async def retried(call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except CoordinatorUnavailable:
                await asyncio.sleep(0.1)

    outcome = scene.call(process, count)
    scene.world.run_until(lambda: bool(outcome), within_s=1_000)
    node = scene.service.tree.get("/counter")
    assert node is not None
    assert isinstance(outcome[0], int)
    assert 0 < outcome[0] < node.version < 100
    assert not scene.lost_at_s


def test_a_watch_shows_what_it_missed(scene: Scene) -> None:
    process = scene.start(HOST)
    other = scene.start(OTHER)
    seen: list[object] = []

    async def watch(session: Coordinator) -> None:
        async for names in session.watch_children("/"):
            seen.append(names)  # noqa: PERF401 - as they come

    scene.call(process, watch)
    kept = scene._kept
    scene.world.run_for(A_WHILE_S)
    assert seen == [[HOST, OTHER]]
    scene.network.cut_both(HOST, COORDINATOR)
    outcome = scene.call(other, lambda session: session.create("/a", b""))
    scene.call(other, lambda session: session.create("/b", b""))
    scene.world.run_for(TIMEOUT_S / 2)
    assert outcome == [None]
    assert len(seen) == 1
    scene.network.heal_all()
    scene.world.run_for(TIMEOUT_S)
    assert seen[-1] == ["a", "b", HOST, OTHER]
    assert len(seen) <= 3
    assert not kept.done()


def test_a_coordinator_that_is_away_for_long_costs_sessions_at_the_clients(scene: Scene) -> None:
    process = scene.start(HOST)
    scene.service.go_away()
    outcome = scene.call(process, lambda session: session.get("/a"))
    scene.world.run_for(5 * TIMEOUT_S)
    assert isinstance(outcome[0], CoordinatorUnavailable)
    assert HOST in scene.lost_at_s
    assert scene.holds(HOST)
    scene.service.come_back()
    back_at_s = scene.world.now_s
    assert scene.released_at_s(HOST) - back_at_s == pytest.approx(TIMEOUT_S)


def test_a_coordinator_that_is_away_for_short_costs_nothing(scene: Scene) -> None:
    process = scene.start(HOST)
    for _ in range(20):
        scene.service.go_away()
        scene.world.run_for(TIMEOUT_S / 3)
        scene.service.heal()
        scene.world.run_for(TIMEOUT_S / 2)
        outcome = scene.call(process, lambda session: session.get("/a"))
        scene.world.run_for(A_WHILE_S)
        assert outcome == [None]
    assert not scene.lost_at_s


def test_who_cannot_reach_the_coordinator_cannot_join(scene: Scene) -> None:
    scene.network.cut_both(HOST, COORDINATOR)

    async def join(process: Process) -> None:
        with pytest.raises(CoordinatorUnavailable):
            await scene.service.connect(process, HOST)

    scene.world.run(HOST, join)
    scene.network.heal_all()
    scene.world.run_for(3 * TIMEOUT_S)
    scene.start(HOST)


def test_a_slow_coordinator_answers_all_the_same(scene: Scene) -> None:
    process = scene.start(HOST)
    scene.service.slow(TIMEOUT_S / 6)
    for _ in range(10):
        outcome = scene.call(process, lambda session: session.get("/a"))
        scene.world.run_for(TIMEOUT_S)
        assert outcome == [None]
    assert not scene.lost_at_s


def test_closing_behind_a_cut_link_ends_in_time(scene: Scene) -> None:
    process = scene.start(HOST)
    scene.network.cut_both(HOST, COORDINATOR)
    outcome = scene.call(process, lambda session: session.close())
    scene.world.run_for(TIMEOUT_S)
    assert outcome == [None]
    assert HOST in scene.lost_at_s


def test_sessions_are_repeated_by_their_seed() -> None:
    def run(seed: int) -> int:
        with World(seed, lines_max=0) as world:
            scene = Scene(world, notices_death=False)
            scene.start(HOST)
            scene.start(OTHER)
            scene.service.break_often(0.1)
            world.run_for(20 * TIMEOUT_S)
            return world.trace.digest

    assert run(1) == run(1)
    assert run(1) != run(2)
