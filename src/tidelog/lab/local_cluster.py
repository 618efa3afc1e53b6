"""A cluster whose processes are killed, paused and started again by whoever started it (B3).

Brokers are ended and started through the data folder, as the commands do; `tidelog status` and the
others work on it meanwhile. Which kind of brokers they are is their engine's affair (`engines.py`):
what is done to them here is done to Kafka's as to ours.
"""

import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from tidelog.client.errors import ClientError
from tidelog.client.membership import TopicView, ask_topic
from tidelog.lab import small_disks
from tidelog.lab.engines import Engine, KafkaEngine, TidelogEngine
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.found_engine import FoundEngine
from tidelog.lab.kafka import KafkaInstallation
from tidelog.lab.moving_away import move_away
from tidelog.lab.plan import FIRST_BROKER_ID
from tidelog.lab.processes import send_signal
from tidelog.lab.running import (
    find_brokers,
    forget_some,
    kill_broker,
    restart_brokers,
    stop_cluster,
    stop_in_turn,
)
from tidelog.lab.starting import Patience, bury_the_dead
from tidelog.lab.state import BrokerState, read_state
from tidelog.lab.zookeeper import ZooKeeperEnsemble

_READY_WITHIN_S: Final = 60.0
_KAFKA_READY_WITHIN_S: Final = 180.0
_STOP_WITHIN_S: Final = 60.0
_MOVE_S: Final = 120.0
_ANSWER_WITHIN_S: Final = 1.0
_POLL_INTERVAL_S: Final = 0.05
_COMPLAINT: Final = re.compile(r"(\S+Z (ERROR|CRITICAL)\s|Traceback |AssertionError)")
# What a broker should say of a full disk, and of a session that was taken from it.
_RIGHTLY_SAID: Final = re.compile(
    r"log directory offline .*No space left on device|cannot join the cluster again"
)

T = TypeVar("T")


class NotInTime(LabError):
    """The cluster did not become what it should be."""


class LocalCluster:
    """Brokers 1..N of one engine, and whatever it runs beside them."""

    def __init__(
        self, folder: ClusterFolder, engine: Engine, patience: Patience, *, disk_mib: int | None
    ) -> None:
        """`disk_mib`: the size of a disk of its own for each broker's logs, which can be filled."""
        self.folder = folder
        self.engine = engine
        self._patience = patience
        self._disk_mib = disk_mib
        self._disks: list[Path] = []
        self._complaints_of_removed: list[str] = []

    @classmethod
    def of_tidelog(
        cls,
        root: Path,
        coordination: str,
        is_cancelled: Callable[[], bool],
        *,
        has_network: bool = False,
        disk_mib: int | None = None,
    ) -> "LocalCluster":
        """Ours; `coordination` is `sqlite`, or `zookeeper` for an ensemble of its own.

        With a network of its own, links between brokers, clients and servers can be cut.
        """
        folder = ClusterFolder(root)
        engine = TidelogEngine(folder, coordination, has_network=has_network)
        patience = Patience(_READY_WITHIN_S, is_cancelled)
        return cls(folder, engine, patience, disk_mib=disk_mib)

    @classmethod
    def of_kafka(
        cls,
        root: Path,
        installation: KafkaInstallation,
        is_cancelled: Callable[[], bool],
        *,
        has_network: bool = False,
        disk_mib: int | None = None,
    ) -> "LocalCluster":
        """Apache Kafka's."""
        folder = ClusterFolder(root)
        engine = KafkaEngine(folder, installation, has_network=has_network)
        patience = Patience(_KAFKA_READY_WITHIN_S, is_cancelled)
        return cls(folder, engine, patience, disk_mib=disk_mib)

    @classmethod
    def find(cls, folder: ClusterFolder, is_cancelled: Callable[[], bool]) -> "LocalCluster":
        """The one that runs in `folder`, whoever started it; LabError if none was."""
        if not read_state(folder.state_file):
            raise LabError(f"no cluster was started in {folder.root}")
        patience = Patience(_READY_WITHIN_S, is_cancelled)
        return cls(folder, FoundEngine(folder), patience, disk_mib=None)

    def start(self, broker_count: int, settings: Mapping[str, str]) -> None:
        """Return once every broker knows all of them. After a failure `stop` is to be called."""
        for broker_id in range(FIRST_BROKER_ID, FIRST_BROKER_ID + broker_count):
            self._mount_disk(broker_id)
        self.engine.start(broker_count=broker_count, settings=settings, patience=self._patience)

    def stop(self) -> list[str]:
        """Stop everything in order; what did not go as it should."""
        brokers = self.brokers
        for broker in brokers:
            send_signal(broker.process, signal.SIGCONT)
        give_up_at = time.monotonic() + _STOP_WITHIN_S
        remaining = stop_cluster(
            self.folder, brokers, is_impatient=lambda: time.monotonic() >= give_up_at
        )
        for broker in remaining:
            kill_broker(broker)
        bury_the_dead()
        self.engine.stop()
        for log_dir in self._disks:
            small_disks.release(log_dir)
        return [
            f"broker {broker.id} did not stop within {_STOP_WITHIN_S:g} s" for broker in remaining
        ]

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        return read_state(self.folder.state_file)

    @property
    def bootstrap(self) -> str:
        """Where clients find the cluster: its proxies, if it has a network that can be cut."""
        return self.engine.bootstrap or ",".join(broker.address for broker in self.brokers)

    # -- what is done to brokers -----------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        kill_broker(self._broker(broker_id))

    def pause(self, broker_id: int) -> None:
        self._signal(broker_id, signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        self._signal(broker_id, signal.SIGCONT)

    def restart(self, *broker_ids: int) -> None:
        """Start those that are dead, stop others cleanly first; return once all serve clients.

        All at once: of Kafka's controllers, those that were killed need each other.
        """
        restart_brokers(
            self.folder, broker_ids, stop_within_s=_STOP_WITHIN_S, patience=self._patience
        )

    def stop_broker(self, broker_id: int) -> None:
        """Stop it cleanly: it hands its leaderships over first."""
        give_up_at = time.monotonic() + _STOP_WITHIN_S
        if stop_in_turn(
            [self._broker(broker_id)], is_impatient=lambda: time.monotonic() >= give_up_at
        ):
            raise NotInTime(f"broker {broker_id} did not stop within {_STOP_WITHIN_S:g} s")

    def add_broker(self) -> int:
        """Start one more, with what the others have; its number."""
        broker_id = max(self.folder.broker_ids()) + 1
        self._mount_disk(broker_id)
        self.engine.add(broker_id, patience=self._patience)
        return broker_id

    def remove_broker(self, broker_id: int) -> None:
        """Have others hold its replicas, stop it cleanly and forget it.

        LabError, and nothing has changed, if the others are too few for that. What it has left on
        disk is set aside, in a folder whose name ends in `.removed`.
        """
        self._broker(broker_id)
        if self.engine.why_fixed is not None:
            raise LabError(f"broker {broker_id} was not removed: {self.engine.why_fixed}")
        move_away(lambda: self.brokers, broker_id, replace(self._patience, ready_within_s=_MOVE_S))
        self.stop_broker(broker_id)
        self._complaints_of_removed += self._complaints_of(broker_id)
        with self.folder.locked():
            forget_some(self.folder, [broker_id])
            small_disks.release(self.folder.log_dir(broker_id))
            self._set_aside(self.folder.broker_folder(broker_id))
        self.engine.remove(broker_id)

    def _mount_disk(self, broker_id: int) -> None:
        if self._disk_mib is not None:
            log_dir = self.folder.log_dir(broker_id)
            small_disks.mount(log_dir, size_mib=self._disk_mib)
            self._disks.append(log_dir)

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(f"{path.name}.removed")
        shutil.rmtree(aside, ignore_errors=True)  # One of the same number that went before.
        path.rename(aside)

    # -- what is done to the ensemble ------------------------------------------------------------

    def ensemble_leader(self) -> int:
        """The id of the server that leads; waits until one does."""
        return self._wait_for(self._servers.leader, "ZooKeeper has no leader")

    def kill_server(self, server_id: int) -> None:
        self._servers.kill(server_id)

    def pause_server(self, server_id: int) -> None:
        self._servers.signal(server_id, signal.SIGSTOP)

    def resume_server(self, server_id: int) -> None:
        self._servers.signal(server_id, signal.SIGCONT)

    def restart_server(self, server_id: int) -> None:
        """Start one that was killed; return once it serves."""
        self._servers.restart(server_id)
        self._servers.wait_until_serving(
            within_s=_READY_WITHIN_S, is_cancelled=self._patience.is_cancelled
        )

    @property
    def _servers(self) -> ZooKeeperEnsemble:
        ensemble = self.engine.ensemble
        assert ensemble is not None, "the cluster is one without ZooKeeper"
        return ensemble

    # -- what the cluster says -------------------------------------------------------------------

    def view(self, topic: str) -> TopicView:
        """The topic as most brokers see it that know it, and a controller."""
        return self._wait_for(lambda: self._common_view(topic), f"no broker knows {topic}")

    def wait_in_sync(self, topic: str, replica_count: int, *, within_s: float) -> None:
        """Return once each broker says that everybody is alive and in sync."""
        give_up_at = time.monotonic() + within_s
        while problems := self._out_of_sync(topic, replica_count):
            if self._patience.is_cancelled():
                raise StartCancelled("the cluster is not in sync yet")
            if time.monotonic() >= give_up_at:
                raise NotInTime(f"not in sync after {within_s:g} s: {'; '.join(problems)}")
            time.sleep(_POLL_INTERVAL_S)

    def complaints(self) -> list[str]:
        """What brokers have said that needs a person."""
        return [
            *self._complaints_of_removed,
            *(line for each in self.folder.broker_ids() for line in self._complaints_of(each)),
        ]

    def _complaints_of(self, broker_id: int) -> list[str]:
        output = self.folder.output_file(broker_id).read_text("utf-8", "replace")
        return [
            f"broker {broker_id}: {line}"
            for line in output.splitlines()
            if _COMPLAINT.match(line) and not _RIGHTLY_SAID.search(line)
        ]

    def _common_view(self, topic: str) -> TopicView | None:
        views: list[TopicView] = []
        for broker in self.brokers:
            with suppress(ClientError):
                views.append(ask_topic(broker.endpoint, topic, timeout_s=_ANSWER_WITHIN_S))
        known = [view for view in views if view.partitions and view.membership.controller_id]
        # Who is cut off from the others goes on believing in what it heard last.
        return max(known, key=known.count, default=None)

    def _out_of_sync(self, topic: str, replica_count: int) -> list[str]:
        brokers = self.brokers
        problems = []
        for broker in brokers:
            if not broker.is_alive:
                raise NotInTime(f"broker {broker.id} has ended by itself")
            try:
                view = ask_topic(broker.endpoint, topic, timeout_s=_ANSWER_WITHIN_S)
            except ClientError as error:
                problems.append(str(error))
                continue
            problems += [
                f"broker {broker.id}: {what}"
                for what in _faults_in(view, len(brokers), replica_count)
            ]
        return problems

    def _wait_for(self, look: Callable[[], T | None], otherwise: str) -> T:
        give_up_at = time.monotonic() + _READY_WITHIN_S
        while (found := look()) is None:
            if self._patience.is_cancelled():
                raise StartCancelled(otherwise)
            if time.monotonic() >= give_up_at:
                raise NotInTime(f"{otherwise} after {_READY_WITHIN_S:g} s")
            time.sleep(_POLL_INTERVAL_S)
        return found

    def _broker(self, broker_id: int) -> BrokerState:
        (broker,) = find_brokers(self.folder, [broker_id])
        return broker

    def _signal(self, broker_id: int, number: int) -> None:
        if not send_signal(self._broker(broker_id).process, number):
            raise NotInTime(f"broker {broker_id} has ended by itself")


def _faults_in(view: TopicView, broker_count: int, replica_count: int) -> list[str]:
    faults = []
    if view.membership.controller_id is None:
        faults.append("no controller")
    if len(view.membership.broker_ids) < broker_count:
        faults.append(f"only {sorted(view.membership.broker_ids)} are alive")
    if not view.partitions:
        faults.append("does not know the topic")
    faults += [
        f"partition {each.partition} has leader {each.leader} and isr {list(each.isr)}"
        for each in view.partitions
        if each.leader is None or len(each.isr) < replica_count
    ]
    return faults
