"""A cluster that runs for tests, and everything that a test does to it (O4).

What is done to brokers is the lab's work (`tidelog.lab.local_cluster`); here it gets the names that
tests use, and who is paused is remembered, so that the cluster can be made whole for the next test.

Every wait has an end: a LabError says what did not happen, and what the brokers said instead.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from tidelog.client.errors import RequestFailed
from tidelog.client.values import PartitionDescription
from tidelog.lab.errors import LabError
from tidelog.lab.local_cluster import LocalCluster, NotInTime
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.state import BrokerState
from tidelog.testing import cluster_topics
from tidelog.testing.broker_logs import BrokerLogs
from tidelog.testing.cluster_records import StoredRecord, read_records, send_records
from tidelog.testing.cluster_view import common_view, out_of_sync, partitions_of
from tidelog.testing.guardian import forget_folder
from tidelog.testing.network import NetworkPartition, Parties, cut

WAIT_S: Final = 60.0
_POLL_INTERVAL_S: Final = 0.02

T = TypeVar("T")


class Cluster:
    """Brokers 1..N, each a process of its own. Made by `tidelog.testing.cluster`."""

    def __init__(self, local: LocalCluster) -> None:
        self._local = local
        self._starter = os.getpid()
        self._paused: set[int] = set()
        self._is_harmed = False
        self.broker_ids: Final = tuple(broker.id for broker in local.brokers)
        self.bootstrap: Final = local.bootstrap
        self.logs: Final = BrokerLogs(local.folder, self.broker_ids)

    @property
    def folder(self) -> Path:
        """Where everything of the cluster is; gone when the cluster is."""
        return self._local.folder.root

    def data_folder(self, broker_id: int) -> Path:
        """A broker's `log.dirs`: Kafka's files are in it."""
        return self._local.folder.log_dir(self._known(broker_id))

    def address_of(self, broker_id: int) -> str:
        """Where one broker listens itself, past a network that can be cut."""
        return self._broker(broker_id).address

    def pid_of(self, broker_id: int) -> int:
        return self._broker(broker_id).pid

    def log_of(self, broker_id: int) -> str:
        """All that a broker has printed, over all its starts."""
        return self.logs.text(self._known(broker_id))

    def is_running(self, broker_id: int) -> bool:
        """Whether it is neither dead nor paused."""
        return self._broker(broker_id).is_alive and broker_id not in self._paused

    # -- topics and records ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        placement: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Make a topic, wait until it is in sync, and return its name: a new one if none is given.

        `replicas` are as many as there are brokers, up to three, unless said. `placement` names the
        brokers of each partition instead, its preferred leader first.
        """
        topic = cluster_topics.unused_name() if name is None else name
        cluster_topics.create(
            self.bootstrap,
            topic,
            partition_count=partitions,
            replica_count=replicas,
            placement=placement,
            config=config or {},
        )
        self._wait_for(lambda: self._has_leaders(topic), f"{topic} has no leaders")
        if all(self.is_running(broker_id) for broker_id in self.broker_ids):
            self.wait_in_sync(topic)
        return topic

    def delete_topic(self, name: str) -> None:
        cluster_topics.delete(self.bootstrap, name)

    def discard_topic(self, name: str) -> None:
        """Delete it if that can be done now: nobody is away, and the test has not done it."""
        if not self._is_harmed:
            with suppress(RequestFailed):
                self.delete_topic(name)

    def topics(self) -> list[str]:
        """The names of all there are, brokers' own included."""
        view = self._wait_for(lambda: common_view(self._running()), "no broker answers")
        return sorted({name for name, _number in view.partitions})

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads; waits until one does that is neither dead nor paused."""

        def look() -> int | None:
            leader = self._look_at(topic, partition).leader
            return leader if leader is not None and self.is_running(leader) else None

        return self._wait_for(look, f"nobody who runs leads {topic}-{partition}")

    def isr_of(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas in sync now."""
        return self._look_at(topic, partition).isr

    def replicas_of(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """All replicas, the preferred leader first."""
        return self._look_at(topic, partition).replicas

    def controller(self) -> int:
        """The broker that is controller; waits until one is that is neither dead nor paused."""

        def look() -> int | None:
            view = common_view(self._running())
            found = None if view is None else view.membership.controller_id
            return found if found is not None and self.is_running(found) else None

        return self._wait_for(look, "nobody who runs is controller")

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Where each partition ends: one past the last record."""
        return cluster_topics.end_offsets(self.bootstrap, topic, self._partitions(topic))

    def send(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Mapping[str, bytes | str] | None = None,
    ) -> None:
        """Return once every record is acknowledged by all replicas in sync."""
        send_records(
            self.bootstrap, topic, values, key=key, partition=partition, headers=headers or {}
        )

    def records(self, topic: str) -> list[StoredRecord]:
        """All that a consumer of committed records can read now, by partition and offset."""
        return read_records(self.bootstrap, topic, self._partitions(topic))

    # -- what is done to brokers -----------------------------------------------------------------

    def kill_broker(self, broker_id: int) -> None:
        """End it at once, as a power cut would (SIGKILL). One that is dead already is fine."""
        self._harm(broker_id)
        self._local.kill(broker_id)
        self._paused.discard(broker_id)

    def stop_broker(self, broker_id: int) -> None:
        """Stop it cleanly (SIGTERM): it hands its leaderships over first."""
        self._harm(broker_id)
        self.resume_broker(broker_id)
        self._local.stop_broker(broker_id)

    def restart_broker(self, broker_id: int) -> None:
        """Start it again where it was, with its data; stop it cleanly first if it runs."""
        self._harm(broker_id)
        self.resume_broker(broker_id)
        self._local.restart(broker_id)

    def pause_broker(self, broker_id: int) -> None:
        """Let it do nothing more, and tell nobody (SIGSTOP); its session ends after a while."""
        self._harm(broker_id)
        self._local.pause(broker_id)
        self._paused.add(broker_id)

    def resume_broker(self, broker_id: int) -> None:
        """Let it go on; it does not know that it was paused. One that was not is fine."""
        if self._known(broker_id) in self._paused:
            self._local.resume(broker_id)
            self._paused.discard(broker_id)

    # -- what is done to the network -------------------------------------------------------------

    def partition_network(self, these: Parties, those: Parties | None = None) -> NetworkPartition:
        """Let nothing pass between two groups of brokers (numbers) and CLIENTS, until healed.

        Without a second group everybody else is in it. Nobody is told: what is sent waits. May be
        used in a `with`, at the end of which the links are healed.
        """
        self._is_harmed = True
        return cut(self._network(), self.broker_ids, these, those)

    def heal_network(self) -> None:
        """Undo whatever was done to links."""
        self._network().heal_all()

    def _network(self) -> LabNetwork:
        network = self._local.engine.network
        if network is None:
            raise LabError(
                "this cluster has no network that can be cut: ask for one with network=True, "
                "in cluster() or in @pytest.mark.tidelog()"
            )
        return network

    # -- waiting ---------------------------------------------------------------------------------

    def wait_in_sync(self, topic: str | None = None, *, within_s: float = WAIT_S) -> None:
        """Return once every replica of the topic, or of all topics, is in sync.

        Every broker that runs has to say so: one that has not heard the latest would be wrong.
        """
        give_up_at = time.monotonic() + within_s
        while problems := out_of_sync(self._running(), topic):
            self._require_replicas_run(topic)
            if time.monotonic() >= give_up_at:
                raise NotInTime(f"not in sync after {within_s:g} s: {'; '.join(problems[:3])}")
            time.sleep(_POLL_INTERVAL_S)

    def _require_replicas_run(self, topic: str | None) -> None:
        """Refuse to wait for what cannot happen."""
        view = common_view(self._running())
        away = [each for each in self.broker_ids if not self.is_running(each)]
        replicas = () if view is None else partitions_of(view, topic).values()
        waited_for = [each for each in away if any(each in one.replicas for one in replicas)]
        if waited_for:
            numbers = ", ".join(map(str, waited_for))
            raise LabError(f"broker {numbers} is down or paused, and cannot be in sync")

    def make_whole(self) -> None:
        """Undo every harm: heal links, resume who is paused, start who is dead, wait for sync.

        Returns at once if nothing was done to the cluster.
        """
        dead = [broker.id for broker in self._local.brokers if not broker.is_alive]
        if not dead and not self._is_harmed:
            return
        if self._local.engine.network is not None:
            self.heal_network()
        for broker_id in tuple(self._paused - {*dead}):
            self.resume_broker(broker_id)
        self._paused.clear()
        if dead:
            self._local.restart(*dead)
        self.wait_in_sync()
        self._is_harmed = False

    def story(self) -> str:
        """How its brokers are, and what they have said since the test began, for people."""
        parts = []
        for broker_id in self.broker_ids:
            said = self.logs.since_mark(broker_id) or ["(said nothing)"]
            parts.append("\n".join([f"broker {broker_id}, {self._condition(broker_id)}", *said]))
        return "\n\n".join(parts)

    def _condition(self, broker_id: int) -> str:
        if broker_id in self._paused:
            return "paused"
        return "running" if self.is_running(broker_id) else "down"

    # -- the end ---------------------------------------------------------------------------------

    def close(self, *, keeps_data: bool) -> None:
        """Kill the brokers, and remove their data unless somebody wants to look at it."""
        if os.getpid() != self._starter:
            return  # A fork's copy. The cluster is its parent's.
        for broker in self._local.brokers:
            self._local.kill(broker.id)
        self._local.stop()
        if not keeps_data:
            shutil.rmtree(self.folder, ignore_errors=True)
        forget_folder(self.folder)

    # -- parts -----------------------------------------------------------------------------------

    def _running(self) -> list[BrokerState]:
        return [
            broker
            for broker in self._local.brokers
            if broker.is_alive and broker.id not in self._paused
        ]

    def _partitions(self, topic: str) -> list[int]:
        def look() -> list[int] | None:
            view = common_view(self._running())
            found = () if view is None else partitions_of(view, topic)
            return sorted(number for _name, number in found) or None

        return self._wait_for(look, f"no broker knows {topic}")

    def _look_at(self, topic: str, partition: int) -> PartitionDescription:
        def look() -> PartitionDescription | None:
            view = common_view(self._running())
            return None if view is None else view.partitions.get((topic, partition))

        return self._wait_for(look, f"no broker knows {topic}-{partition}")

    def _has_leaders(self, topic: str) -> bool | None:
        view = common_view(self._running())
        found = () if view is None else partitions_of(view, topic).values()
        return (bool(found) and all(each.leader is not None for each in found)) or None

    def _wait_for(self, look: Callable[[], T | None], otherwise: str) -> T:
        give_up_at = time.monotonic() + WAIT_S
        while (found := look()) is None:
            if time.monotonic() >= give_up_at:
                raise NotInTime(f"{otherwise} after {WAIT_S:g} s")
            time.sleep(_POLL_INTERVAL_S)
        return found

    def _harm(self, broker_id: int) -> None:
        self._known(broker_id)
        self._is_harmed = True

    def _known(self, broker_id: int) -> int:
        if broker_id not in self.broker_ids:
            numbers = ", ".join(map(str, self.broker_ids))
            raise LabError(f"there is no broker {broker_id} in this cluster, only {numbers}")
        return broker_id

    def _broker(self, broker_id: int) -> BrokerState:
        self._known(broker_id)
        (found,) = (broker for broker in self._local.brokers if broker.id == broker_id)
        return found


class Broker(Cluster):
    """A cluster of one, which needs no number."""

    _ID: Final = 1

    def kill(self) -> None:
        """End it at once, as a power cut would (SIGKILL)."""
        self.kill_broker(self._ID)

    def stop(self) -> None:
        """Stop it cleanly (SIGTERM)."""
        self.stop_broker(self._ID)

    def restart(self) -> None:
        """Start it again with its data; stop it cleanly first if it runs."""
        self.restart_broker(self._ID)

    def pause(self) -> None:
        """Let it do nothing more, and tell nobody (SIGSTOP)."""
        self.pause_broker(self._ID)

    def resume(self) -> None:
        self.resume_broker(self._ID)
