"""A cluster of its own, a load, faults, and a verdict (B3).

    started, loaded ──▶ fault ──▶ undone ──▶ in sync again ──▶ fault ...     one after the other
                   or ──▶ each at its time, undone when it has lasted         as somebody wrote down
    ... ──▶ all in sync ──▶ all acknowledged, all read ──▶ stopped ──▶ judged by what the disks hold

Brokers are processes. One that is killed leaves what it wrote in the page cache, so nothing that
was acknowledged by all in sync may be lost, however few those were; one whose log is torn has lost
what others have.

Whatever goes wrong besides the records themselves - a broker that does not come back, a cluster
that does not get in sync, a producer that is told an error - is a problem in the outcome.
"""

import heapq
import itertools
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.fault_schedule import Fault, PacedFault, TimedFault
from tidelog.lab.injector import BegunFault, Injector
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.observations import Moment, Observer
from tidelog.lab.record_names import UNKNOWN_RECORD, RecordId, identify_record
from tidelog.lab.replica_files import first_difference, stored_batches
from tidelog.lab.roles import Roles
from tidelog.lab.verdict import PartitionVerdict, judge
from tidelog.lab.workload import Care, Gap, Workload
from tidelog.records.record import decode_records

TOPIC: Final = "faults"
REPLICATION_FACTOR: Final = 3
SESSION_TIMEOUT_S: Final = 2.0
HISTORY_FILE: Final = "faults.txt"
LEDGER_FOLDER: Final = "ledger"
_PRODUCERS_PER_PARTITION: Final = 2
_CONSUMERS: Final = 2
_IN_SYNC_WITHIN_S: Final = 120.0
_CAUGHT_UP_WITHIN_S: Final = 120.0
_POLL_INTERVAL_S: Final = 0.05
# The last acknowledgement may come a moment before a fault, or a while after it.
_LAST_ACK_S: Final = 0.2
_AFTERMATH_S: Final = 1.0

# Short sessions, so that a long pause is a few seconds; leaders that go home soon, so that faults
# find them on all brokers; a disk that was full is looked at again soon.
_SESSION_MS: Final = str(round(1_000 * SESSION_TIMEOUT_S))
_SETTINGS: Final = {
    "broker.session.timeout.ms": _SESSION_MS,
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "3000",
    "leader.imbalance.check.interval.seconds": "5",
}
SETTINGS_OF_TIDELOG: Final = {
    **_SETTINGS,
    "zookeeper.session.timeout.ms": _SESSION_MS,
    "tidelog.log.dir.retry.ms": "500",
}
SETTINGS_OF_KAFKA: Final = {**_SETTINGS, "offsets.topic.num.partitions": "4"}
_SEGMENT_BYTES: Final = "1048576"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRun:
    """What to do, and to which cluster, which has yet to be started."""

    cluster: LocalCluster
    settings: dict[str, str]
    broker_count: int
    partition_count: int
    care: Care
    min_insync_replicas: int
    allows_unclean_election: bool
    faults: Sequence[PacedFault] | Sequence[TimedFault]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of it all."""

    engine: str = ""
    injected: list[BegunFault] = field(default_factory=list)
    verdicts: list[PartitionVerdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    sent: int = 0
    began_at: float = 0.0
    loaded_at: float = 0.0
    """When records began to be sent; times of schedules and reports count from here."""
    took_s: float = 0.0

    @property
    def acknowledged(self) -> int:
        return sum(verdict.acknowledged for verdict in self.verdicts)

    @property
    def lost(self) -> int:
        return sum(verdict.lost for verdict in self.verdicts)

    @property
    def duplicated(self) -> int:
        return sum(verdict.duplicated for verdict in self.verdicts)

    @property
    def is_good(self) -> bool:
        return not self.problems and all(verdict.is_good for verdict in self.verdicts)

    @property
    def longest_gap_s(self) -> float:
        """For how long nothing was acknowledged in some partition."""
        return max((gap.length_s for gap in self.gaps), default=0.0)

    @property
    def unavailable_s(self) -> float:
        """For how long a partition took no record, all gaps together, of the average partition."""
        return sum(gap.length_s for gap in self.gaps) / max(1, len(self.verdicts))

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

    on_progress: Callable[[str, Moment | None], None]
    """What is being done, and what the cluster looked like a moment ago."""
    on_fault: Callable[[BegunFault], None]
    """A fault happens."""
    is_cancelled: Callable[[], bool]


def run_faults(run: FaultRun, watcher: Watcher) -> Outcome:
    """Do it all. StartCancelled if the watcher has had enough, LabError if nothing starts."""
    return _FaultLab(run, watcher).run()


class _FaultLab:
    def __init__(self, run: FaultRun, watcher: Watcher) -> None:
        self._run = run
        self._watcher = watcher
        self._cluster = run.cluster
        self._outcome = Outcome(engine=run.cluster.engine.name, began_at=time.monotonic())
        self._observer: Observer | None = None
        self._doing = "starting"
        roles = Roles(self._cluster, TOPIC, is_cancelled=watcher.is_cancelled)
        self._injector = Injector(self._cluster, roles, TOPIC)

    def run(self) -> Outcome:
        try:
            replicas = self._start()
            workload = self._start_workload()
            observer = Observer(self._cluster, TOPIC, lambda: workload.acknowledgements.count)
            self._observer = observer
            observer.start()
            try:
                self._inject_all()
                self._finish(workload)
            except StartCancelled:
                raise
            except (LabError, ClientError) as error:
                self._outcome.problems.append(f"{self._doing}: {error}")
            finally:
                observer.stop()
                workload.stop_producing(within_s=0)
                workload.stop_consuming()
        finally:
            self._outcome.problems += self._cluster.stop()
        self._outcome.moments = observer.moments
        self._judge(workload, replicas)
        self._outcome.took_s = time.monotonic() - self._outcome.began_at
        return self._outcome

    # -- before ----------------------------------------------------------------------------------

    def _start(self) -> list[tuple[int, ...]]:
        """Who holds each partition."""
        self._tell("starting the cluster")
        self._cluster.start(self._run.broker_count, self._run.settings)
        with Admin(self._cluster.bootstrap) as admin:
            admin.create_topic(
                TOPIC,
                partitions=self._run.partition_count,
                replication_factor=REPLICATION_FACTOR,
                configs={
                    "min.insync.replicas": str(self._run.min_insync_replicas),
                    "unclean.leader.election.enable": str(
                        self._run.allows_unclean_election
                    ).lower(),
                    "segment.bytes": _SEGMENT_BYTES,
                },
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
            ledger_folder=self._cluster.folder.root / LEDGER_FOLDER,
            care=self._run.care,
        )
        self._outcome.loaded_at = time.monotonic()
        workload.start()
        return workload

    # -- faults ----------------------------------------------------------------------------------

    def _inject_all(self) -> None:
        paced = [each for each in self._run.faults if isinstance(each, PacedFault)]
        timed = [each for each in self._run.faults if isinstance(each, TimedFault)]
        for each in paced:
            self._inject_in_turn(each)
        self._inject_in_time(timed)

    def _inject_in_turn(self, paced: PacedFault) -> None:
        if paced.needs_sync:
            self._wait_in_sync()
        self._pass_time(paced.load_s)
        begun = self._begin(paced.fault)
        self._pass_time(paced.fault.away_s)
        begun.end()
        if paced.waits_for_sync:
            self._wait_in_sync()

    def _inject_in_time(self, faults: Sequence[TimedFault]) -> None:
        """Each at its time, or as soon as what comes before it is done; undone when it is over."""
        began_at = time.monotonic()
        order = itertools.count()
        ends: list[tuple[float, int, BegunFault]] = []
        for each in faults:
            while ends and ends[0][0] <= each.at_s:
                self._end_next(ends, began_at)
            self._pass_time(began_at + each.at_s - time.monotonic())
            begun = self._begin(each.fault)
            heapq.heappush(ends, (each.at_s + each.fault.away_s, next(order), begun))
        while ends:
            self._end_next(ends, began_at)

    def _end_next(self, ends: list[tuple[float, int, BegunFault]], began_at: float) -> None:
        end_s, _, begun = heapq.heappop(ends)
        self._pass_time(began_at + end_s - time.monotonic())
        self._tell(f"end of {begun.fault.kind}")
        begun.end()

    def _begin(self, fault: Fault) -> BegunFault:
        self._doing = f"fault {fault.number}, {fault.kind}"
        self._tell(fault.kind)
        begun = self._injector.begin(fault)
        self._outcome.injected.append(begun)
        self._write_history(begun)
        self._watcher.on_fault(begun)
        return begun

    # -- after -----------------------------------------------------------------------------------

    def _finish(self, workload: Workload) -> None:
        """Nobody is away any more: all must be acknowledged, and read."""
        self._doing = "after the last fault"
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
        outcome.problems += [
            f"producer {each.number} could not go on: {each.broken}"
            for each in workload.producers
            if each.broken is not None
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
        self._tell("waiting until all are in sync")
        self._cluster.wait_in_sync(TOPIC, REPLICATION_FACTOR, within_s=_IN_SYNC_WITHIN_S)

    def _pass_time(self, seconds: float) -> None:
        """Let the load go on. Nothing is waited for: a fault comes when the schedule says."""
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            if self._watcher.is_cancelled():
                raise StartCancelled("not all faults have happened yet")
            time.sleep(min(left_s, _POLL_INTERVAL_S))

    def _tell(self, doing: str) -> None:
        observer = self._observer
        self._watcher.on_progress(doing, None if observer is None else observer.latest)

    def _write_history(self, begun: BegunFault) -> None:
        clock = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
        path: Path = self._cluster.folder.root / HISTORY_FILE
        with path.open("a", encoding="utf-8") as history:
            history.write(f"{clock}Z {begun.fault.number:4} {begun.as_line()}\n")


def attribute_gaps(gaps: Iterable[Gap], fault_times: Sequence[float]) -> list[float]:
    """The longest gap that each fault caused; times are in order.

    A gap belongs to the first fault that happened during it, else to the last one before it. But
    one that began just behind a fault is of that, also if the next one came before it was over.
    """
    longest = [0.0] * len(fault_times)
    for gap in gaps:
        index = bisect_left(fault_times, gap.began_at)
        if (
            index == len(fault_times)
            or fault_times[index] >= gap.ended_at
            or _is_aftermath(gap.began_at, fault_times[max(0, index - 1)], fault_times[index])
        ):
            index -= 1
        if index >= 0:
            longest[index] = max(longest[index], gap.length_s)
    return longest


def _is_aftermath(began_at: float, before: float, after: float) -> bool:
    """Whether what began between two faults is due to the earlier one."""
    return before <= began_at <= before + _AFTERMATH_S and after - began_at > _LAST_ACK_S


def _records_in(folder: Path, partition: int) -> list[RecordId]:
    """The record at each offset; a gap between batches shows as records of nobody."""
    found: list[RecordId] = []
    for batch in stored_batches(folder):
        found.extend([UNKNOWN_RECORD] * (batch.header.base_offset - len(found)))
        found.extend(
            identify_record(record.value, partition) for record in decode_records(batch.data)
        )
    return found
