"""Clusters started for tests and ended after them: what plain code and unittest call (O4).

    with tidelog.testing.cluster(3) as cluster: ...        a block, or a fixture that yields
    cls.cluster = cls.enterClassContext(cluster(3))        in setUpClass of unittest

Each has a folder of its own in the system's place for temporary files, and ports that no other
process of tests is given.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from tidelog.lab.errors import BrokerDied, LabError, NotReady, PortInUse
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.plan import SQLITE, chosen_settings
from tidelog.testing import open_clusters
from tidelog.testing.guardian import forget_folder, watch_folder
from tidelog.testing.running import Broker, Cluster
from tidelog.testing.shape import DEFAULT_BROKER_COUNT, Shape

_FOLDER_PREFIX: Final = "tidelog-test-"
# A port that was free may be taken, by a program that is none of ours, before a broker has it.
_START_ATTEMPTS: Final = 3
_PORT_TAKEN: Final = "in use"

C = TypeVar("C", bound=Cluster)


@contextmanager
def cluster(
    brokers: int = DEFAULT_BROKER_COUNT,
    *,
    settings: Mapping[str, object] | None = None,
    network: bool = False,
    keep_data: bool = False,
) -> Iterator[Cluster]:
    """A cluster of so many brokers, ready when the block begins, and gone after it.

    `settings` are of all brokers, under Kafka's names. With a `network`, links can be cut. With
    `keep_data`, the data of a block that ends with an exception is left, and the error says where.
    """
    shape = Shape.of(brokers, settings, has_network=network)
    with _running(start(shape, Cluster), keeps_failed=keep_data) as running:
        yield running


@contextmanager
def broker(
    *,
    settings: Mapping[str, object] | None = None,
    network: bool = False,
    keep_data: bool = False,
) -> Iterator[Broker]:
    """The same with one broker."""
    shape = Shape.of(1, settings, has_network=network)
    with _running(start(shape, Broker), keeps_failed=keep_data) as running:
        yield running


@contextmanager
def _running(started: C, *, keeps_failed: bool) -> Iterator[C]:
    try:
        yield started
    except BaseException as error:
        keeps = keeps_failed or open_clusters.keeps_failed()
        if keeps:
            error.add_note(f"the brokers' data is in {started.folder}")
        end(started, is_failed=True, keeps_data=keeps)
        raise
    end(started, is_failed=False, keeps_data=False)


def start(shape: Shape, kind: type[C]) -> C:
    """Return once all brokers serve clients and know each other; `end` is to be called."""
    settings = chosen_settings(shape.broker_count, None, shape.all_settings())
    for _attempt in range(1, _START_ATTEMPTS):
        try:
            return _start(shape, settings, kind)
        except LabError as error:
            if not _is_port_taken(error):
                raise
    return _start(shape, settings, kind)


def _start(shape: Shape, settings: Mapping[str, str], kind: type[C]) -> C:
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
    watch_folder(folder)
    local = LocalCluster.of_tidelog(folder, SQLITE, lambda: False, has_network=shape.has_network)
    try:
        local.start(shape.broker_count, settings)
        started = kind(local)
    except BaseException as error:
        if isinstance(error, BrokerDied | NotReady):
            error.add_note("\n".join(error.last_lines))
        local.stop()
        shutil.rmtree(folder, ignore_errors=True)
        forget_folder(folder)
        raise
    open_clusters.add(started)
    return started


def _is_port_taken(error: LabError) -> bool:
    said = error.sentence if isinstance(error, BrokerDied) else None
    return isinstance(error, PortInUse) or (said is not None and _PORT_TAKEN in said)


def end(running: Cluster, *, is_failed: bool, keeps_data: bool) -> None:
    open_clusters.remove(running, is_failed=is_failed)
    running.close(keeps_data=keeps_data)
