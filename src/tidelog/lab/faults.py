"""A cluster of its own, a load, faults one after the other, and a verdict (B3).

    started, loaded ──▶ fault ──▶ who was away is back ──▶ in sync again ──▶ fault ...
                          ▲                  │
                          └──────────────────┘  some do not wait
    ... ──▶ all in sync ──▶ all acknowledged, all read ──▶ stopped ──▶ judged by what the disks hold

Brokers are processes and faults are signals. A process that is killed leaves what it wrote in the
page cache, so nothing that was acknowledged may be lost, however few replicas were in sync.

Whatever goes wrong besides the records themselves - a broker that does not come back, a cluster
that does not get in sync, a producer that is told an error - is a problem in the outcome.
"""

import random
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, assert_never

from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.client.membership import TopicView
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.fault_schedule import Deed, Fault, Victim
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.record_names import UNKNOWN_RECORD, RecordId, identify_record
from tidelog.lab.replica_files import first_difference, stored_batches
from tidelog.lab.verdict import PartitionVerdict, judge
from tidelog.lab.workload import Acknowledgements, Gap, Workload
from tidelog.records.record import decode_records

TOPIC: Final = "faults"
REPLICATION_FACTOR: Final = 3
SESSION_TIMEOUT_S: Final = 2.0
HISTORY_FILE: Final = "faults.txt"
LEDGER_FOLDER: Final = "ledger"
_MIN_INSYNC_REPLICAS: Final = 2
_PRODUCERS_PER_PARTITION: Final = 2
_CONSUMERS: Final = 2
_IN_SYNC_WITHIN_S: Final = 60.0
_CAUGHT_UP_WITHIN_S: Final = 60.0
_POLL_INTERVAL_S: Final = 0.05

# Short sessions, so that a long pause is a few seconds; leaders that go home soon, so that faults
# find them on all brokers; small segments, so that logs roll.
_SESSION_MS: Final = str(round(1_000 * SESSION_TIMEOUT_S))
_SETTINGS: Final = {
    "broker.session.timeout.ms": _SESSION_MS,
    "broker.heartbeat.interval.ms": "400",
    "zookeeper.session.timeout.ms": _SESSION_MS,
    "replica.lag.time.max.ms": "3000",
    "leader.imbalance.check.interval.seconds": "5",
}
_TOPIC_SETTINGS: Final = {
    "min.insync.replicas": str(_MIN_INSYNC_REPLICAS),
    "segment.bytes": "1048576",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRun:
    """What to do, and where: `folder` holds nothing yet. `coordination`: sqlite or zookeeper."""

    folder: Path
    coordination: str
    broker_count: int
    partition_count: int
    seed: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that happened: to whom, and when, by the clock and since the beginning."""

    fault: Fault
    victims: tuple[str, ...]
    at: float
    at_s: float

    @property
    def names(self) -> str:
        return ", ".join(self.victims)

    def as_line(self) -> str:
        """`kill -9 leader of 3: broker 2, away for 0.8 s`."""
        fault = self.fault
        is_of_partition = fault.victim in {Victim.LEADER, Victim.FOLLOWER}
        whose = f" of {fault.partition}" if is_of_partition else ""
        away = f", away for {fault.away_s:.1f} s" if fault.away_s else ""
        return f"{fault.kind}{whose}: {self.names}{away}"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of it all."""

    injected: list[InjectedFault] = field(default_factory=list)
    verdicts: list[PartitionVerdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    sent: int = 0
    took_s: float = 0.0

    @property
    def acknowledged(self) -> int:
        return sum(verdict.acknowledged for verdict in self.verdicts)

    @property
    def is_good(self) -> bool:
        return not self.problems and all(verdict.is_good for verdict in self.verdicts)

    @property
    def longest_gap_s(self) -> float:
        """For how long nothing was acknowledged in some partition."""
        return max((gap.length_s for gap in self.gaps), default=0.0)

    def gaps_by_kind(self) -> dict[str, list[float]]:
        """By kind of fault: the longest gap of each, in the order of the faults."""
        longest = attribute_gaps(self.gaps, [each.at for each in self.injected])
        by_kind: dict[str, list[float]] = {}
        for each, gap_s in zip(self.injected, longest, strict=True):
            by_kind.setdefault(each.fault.kind, []).append(gap_s)
        return by_kind


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how far it is, and may have had enough."""

    on_progress: Callable[[str, int], None]
    """What is being done, and how many records are acknowledged."""
    on_fault: Callable[[InjectedFault], None]
    """A fault is about to happen."""
    is_cancelled: Callable[[], bool]


def run_faults(run: FaultRun, watcher: Watcher) -> Outcome:
    """Do it all. StartCancelled if the watcher has had enough, LabError if nothing starts."""
    return _FaultLab(run, watcher).run()


class _FaultLab:
    def __init__(self, run: FaultRun, watcher: Watcher) -> None:
        self._run = run
        self._watcher = watcher
        self._cluster = LocalCluster.of_tidelog(run.folder, run.coordination, watcher.is_cancelled)
        self._outcome = Outcome()
        self._began_at = time.monotonic()
        self._acknowledgements: Acknowledgements | None = None
        self._doing = "starting"

    def run(self) -> Outcome:
        try:
            replicas = self._start()
            workload = self._start_workload()
            try:
                self._inject_all()
                self._finish(workload)
            except StartCancelled:
                raise
            except (LabError, ClientError) as error:
                self._outcome.problems.append(f"{self._doing}: {error}")
            finally:
                workload.stop_producing(within_s=0)
                workload.stop_consuming()
        finally:
            self._outcome.problems += self._cluster.stop()
        self._judge(workload, replicas)
        self._outcome.took_s = time.monotonic() - self._began_at
        return self._outcome

    # -- before ----------------------------------------------------------------------------------

    def _start(self) -> list[tuple[int, ...]]:
        """Who holds each partition."""
        self._tell("starting the cluster")
        self._cluster.start(self._run.broker_count, _SETTINGS)
        with Admin(self._cluster.bootstrap) as admin:
            admin.create_topic(
                TOPIC,
                partitions=self._run.partition_count,
                replication_factor=REPLICATION_FACTOR,
                configs=_TOPIC_SETTINGS,
            )
        self._wait_in_sync()
        return [partition.replicas for partition in self._cluster.view(TOPIC).partitions]

    def _start_workload(self) -> Workload:
        workload = Workload(
            self._cluster.bootstrap,
            TOPIC,
            partition_count=self._run.partition_count,
            producers_per_partition=_PRODUCERS_PER_PARTITION,
            consumers=_CONSUMERS,
            ledger_folder=self._run.folder / LEDGER_FOLDER,
        )
        workload.start()
        self._acknowledgements = workload.acknowledgements
        return workload

    # -- faults ----------------------------------------------------------------------------------

    def _inject_all(self) -> None:
        for fault in self._run.faults:
            self._pass_time(fault.load_s)
            self._doing = f"fault {fault.number}, {fault.kind}"
            victims = self._victims(fault)
            at = time.monotonic()
            names = tuple(f"{_process_kind(fault)} {each}" for each in victims)
            injected = InjectedFault(fault, names, at, at - self._began_at)
            self._outcome.injected.append(injected)
            self._write_history(injected)
            self._watcher.on_fault(injected)
            self._inject(fault, victims)
            if fault.waits_for_sync:
                self._tell("waiting until all are in sync")
                self._wait_in_sync()

    def _inject(self, fault: Fault, victims: Sequence[int]) -> None:
        self._tell(f"{fault.kind}: {self._outcome.injected[-1].names}")
        match fault.deed:
            case Deed.KILL if fault.victim is Victim.ENSEMBLE_LEADER:
                self._for_a_while(
                    fault, victims, self._cluster.kill_server, self._cluster.restart_server
                )
            case Deed.KILL:
                self._for_a_while(fault, victims, self._cluster.kill, self._cluster.restart)
            case Deed.PAUSE:
                self._for_a_while(fault, victims, self._cluster.pause, self._cluster.resume)
            case Deed.RESTART:
                for victim in victims:
                    self._cluster.restart(victim)
            case _:
                assert_never(fault.deed)

    def _for_a_while(
        self,
        fault: Fault,
        victims: Sequence[int],
        take_away: Callable[[int], None],
        bring_back: Callable[[int], None],
    ) -> None:
        for victim in victims:
            take_away(victim)
        self._pass_time(fault.away_s)
        for victim in victims:
            bring_back(victim)

    def _victims(self, fault: Fault) -> list[int]:
        """Who has the role now; then others, so many as the fault takes."""
        if fault.victim is Victim.ENSEMBLE_LEADER:
            return [self._cluster.ensemble_leader()]
        chance = random.Random(f"{self._run.seed}/{fault.number}")
        view = self._cluster.view(TOPIC)
        first = _first_victim(fault, view, chance)
        others = [broker.id for broker in self._cluster.brokers if broker.id != first]
        return [first, *chance.sample(others, fault.broker_count - 1)]

    # -- after -----------------------------------------------------------------------------------

    def _finish(self, workload: Workload) -> None:
        """Nobody is away any more: all must be acknowledged, and read."""
        self._doing = "after the last fault"
        self._tell("waiting until all are in sync")
        self._wait_in_sync()
        self._tell("waiting for the last acknowledgements")
        unacknowledged = workload.stop_producing(within_s=_CAUGHT_UP_WITHIN_S)
        if unacknowledged:
            self._outcome.problems.append(f"{unacknowledged} records are not acknowledged")
        self._tell("waiting for the consumers")
        self._wait_for_consumers(workload)
        self._wait_in_sync()

    def _wait_for_consumers(self, workload: Workload) -> None:
        with Admin(self._cluster.bootstrap) as admin:
            bounds = admin.offset_bounds(TOPIC, range(self._run.partition_count))
        ends = [bounds[each].end_offset for each in range(self._run.partition_count)]
        give_up_at = time.monotonic() + _CAUGHT_UP_WITHIN_S
        while not all(consumer.has_reached(ends) for consumer in workload.consumers):
            if time.monotonic() >= give_up_at:
                positions = [list(map(len, each.records)) for each in workload.consumers]
                self._outcome.problems.append(f"consumers stand at {positions}, logs end at {ends}")
                return
            self._pass_time(_POLL_INTERVAL_S)

    def _judge(self, workload: Workload, replicas: Sequence[Sequence[int]]) -> None:
        self._tell("reading the logs")
        outcome = self._outcome
        outcome.problems += [
            f"{count} records were given up: {reason}"
            for reason, count in workload.failures.items()
        ]
        outcome.problems += [each for one in workload.consumers for each in one.anomalies]
        outcome.problems += self._cluster.complaints()
        outcome.sent = workload.sent_count
        outcome.gaps = workload.acknowledgements.gaps
        outcome.verdicts = [
            self._verdict(workload, partition, broker_ids)
            for partition, broker_ids in enumerate(replicas)
        ]

    def _verdict(
        self, workload: Workload, partition: int, broker_ids: Sequence[int]
    ) -> PartitionVerdict:
        folders = {
            broker_id: self._cluster.folder.log_dir(broker_id) / f"{TOPIC}-{partition}"
            for broker_id in broker_ids
        }
        return judge(
            partition,
            stored=_records_in(folders[broker_ids[0]], partition),
            acknowledged=workload.acknowledged_offsets(partition),
            consumed=[consumer.records[partition] for consumer in workload.consumers],
            difference=first_difference(folders),
        )

    # -- all along -------------------------------------------------------------------------------

    def _wait_in_sync(self) -> None:
        self._cluster.wait_in_sync(TOPIC, REPLICATION_FACTOR, within_s=_IN_SYNC_WITHIN_S)

    def _pass_time(self, seconds: float) -> None:
        """Let the load go on. Nothing is waited for: a fault comes when the schedule says."""
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            if self._watcher.is_cancelled():
                raise StartCancelled("not all faults have happened yet")
            time.sleep(min(left_s, _POLL_INTERVAL_S))

    def _tell(self, doing: str) -> None:
        known = self._acknowledgements
        self._watcher.on_progress(doing, 0 if known is None else known.count)

    def _write_history(self, injected: InjectedFault) -> None:
        clock = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
        with (self._run.folder / HISTORY_FILE).open("a", encoding="utf-8") as history:
            history.write(f"{clock}Z {injected.fault.number:4} {injected.as_line()}\n")


def attribute_gaps(gaps: Iterable[Gap], fault_times: Sequence[float]) -> list[float]:
    """The longest gap that each fault caused; times are in order.

    A gap belongs to the first fault that happened during it, else to the last one before it.
    """
    longest = [0.0] * len(fault_times)
    for gap in gaps:
        index = bisect_left(fault_times, gap.began_at)
        if index == len(fault_times) or fault_times[index] >= gap.ended_at:
            index -= 1
        if index >= 0:
            longest[index] = max(longest[index], gap.length_s)
    return longest


def _first_victim(fault: Fault, view: TopicView, chance: random.Random) -> int:
    partition = view.partitions[fault.partition]
    controller_id = view.membership.controller_id
    match fault.victim:
        case Victim.CONTROLLER if controller_id is not None:
            return controller_id
        case Victim.LEADER if partition.leader is not None:
            return partition.leader
        case _:
            followers = [each for each in partition.replicas if each != partition.leader]
            return chance.choice(followers)


def _process_kind(fault: Fault) -> str:
    return "server" if fault.victim is Victim.ENSEMBLE_LEADER else "broker"


def _records_in(folder: Path, partition: int) -> list[RecordId]:
    """The record at each offset; a gap between batches shows as records of nobody."""
    found: list[RecordId] = []
    for batch in stored_batches(folder):
        found.extend([UNKNOWN_RECORD] * (batch.header.base_offset - len(found)))
        found.extend(
            identify_record(record.value, partition) for record in decode_records(batch.data)
        )
    return found
