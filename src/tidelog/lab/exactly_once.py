"""Exactly once under faults: a cluster, an application in transactions, and a verdict (D3, B3).

    input fed ──▶ applications transform it to output ──▶ all of it is through ──▶ judged
        ▲              ▲  brokers, coordinators and the applications themselves
        │              └─ are killed, paused and restarted meanwhile
        └─ part by part, so that there is work to do whenever a fault happens

Each partition of the output must hold, for who reads committed records, what the same partition of
the input holds: every record once, in order. And nothing may be left open: what killed applications
had begun has to be ended by their coordinators.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, assert_never

from confluent_kafka import Consumer, TopicPartition

from tidelog.client.admin import Admin
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.coordinators import GROUP, TRANSACTION, find_coordinator
from tidelog.client.errors import ClientError
from tidelog.client.groups import Groups
from tidelog.client.membership import TopicView
from tidelog.lab.applications import Applications
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.exactly_once_schedule import PlannedFault, Target
from tidelog.lab.exactly_once_verdict import TransformVerdict, judge_transform
from tidelog.lab.fault_schedule import Deed
from tidelog.lab.input_feed import InputFeed, value_of
from tidelog.lab.transformer import PREFIX

INPUT: Final = "input"
OUTPUT: Final = "output"
GROUP_ID: Final = "transformers"
REPLICATION_FACTOR: Final = 3
_STALLED_AFTER_S: Final = 120.0
_ENDED_WITHIN_S: Final = 60.0
_IN_SYNC_WITHIN_S: Final = 60.0
_FOUND_WITHIN_S: Final = 60.0
_ANSWER_WITHIN_S: Final = 5.0
_LOOK_INTERVAL_S: Final = 0.1

# Short sessions, so that a long pause is a few seconds; few partitions of the coordinators' topics,
# so that each of them is loaded again and again.
SETTINGS: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "leader.imbalance.check.interval.seconds": "5",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": str(REPLICATION_FACTOR),
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": str(REPLICATION_FACTOR),
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
_TOPIC_SETTINGS: Final = {"min.insync.replicas": "2", "segment.bytes": "1048576"}


class BreakableCluster(Protocol):
    """What is done to brokers, and what they say. `MortalCluster` is one."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self, broker_id: int) -> None: ...
    def pause(self, broker_id: int) -> None: ...
    def resume(self, broker_id: int) -> None: ...
    def restart(self, broker_id: int) -> None: ...
    def view(self, topic: str) -> TopicView: ...
    def wait_in_sync(self, topic: str, replica_count: int, *, within_s: float) -> None: ...
    def complaints(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceRun:
    """What to do. `protocol` of the group: classic or consumer."""

    folder: Path
    record_count: int
    partition_count: int
    application_count: int
    protocol: str
    replication_factor: int
    faults: tuple[PlannedFault, ...]


@dataclass(slots=True, kw_only=True)
class ExactlyOnceOutcome:
    """What became of it all."""

    injected: list[str] = field(default_factory=list)
    verdicts: list[TransformVerdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    given_up: int = 0
    """How often an application was fenced or gave up, and was started again."""
    took_s: float = 0.0
    longest_silence_s: float = 0.0
    """The longest time without a commit that was seen; while something is away nobody looks."""
    silent_at: str = ""
    """What was done to whom then."""

    @property
    def is_good(self) -> bool:
        return not self.problems and all(verdict.is_good for verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how far it is, and may have had enough."""

    on_progress: Callable[[str, int], None]
    """What is being done, and how many records are through."""
    is_cancelled: Callable[[], bool]


class ExactlyOnceLab:
    """Runs once, on a cluster that is up. Whoever started it stops it."""

    def __init__(self, run: ExactlyOnceRun, cluster: BreakableCluster, watcher: Watcher) -> None:
        self._run = run
        self._cluster = cluster
        self._watcher = watcher
        self._outcome = ExactlyOnceOutcome()
        self._doing = "starting"
        self._through = 0
        self._progressed_at = time.monotonic()
        self._applications = Applications(run.folder, self._arguments)

    def run(self) -> ExactlyOnceOutcome:
        began_at = time.monotonic()
        try:
            self._prepare()
            self._start_applications()
            with InputFeed(self._cluster.bootstrap, INPUT, self._run.partition_count) as feed:
                self._transform_under_faults(feed)
            self._finish()
        except StartCancelled:
            raise
        except (LabError, ClientError) as error:
            self._outcome.problems.append(f"{self._doing}: {error}")
        finally:
            self._applications.stop()
        self._outcome.problems += self._applications.problems
        self._outcome.problems += self._cluster.complaints()
        self._outcome.given_up = self._applications.given_up
        self._outcome.took_s = time.monotonic() - began_at
        return self._outcome

    # -- before ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        with Admin(self._cluster.bootstrap) as admin:
            for topic in (INPUT, OUTPUT):
                admin.create_topic(
                    topic,
                    partitions=self._run.partition_count,
                    replication_factor=self._run.replication_factor,
                    configs=_TOPIC_SETTINGS,
                )

    def _start_applications(self) -> None:
        self._tell("starting the applications")
        for number in range(1, self._run.application_count + 1):
            self._applications.start(f"transformer-{number}")

    def _arguments(self, name: str) -> list[str]:
        run = self._run
        return [self._cluster.bootstrap, GROUP_ID, INPUT, OUTPUT, name, run.protocol]

    # -- faults ----------------------------------------------------------------------------------

    def _transform_under_faults(self, feed: InputFeed) -> None:
        """The n-th fault happens when the n-th part is through, and the next one is there."""
        ends = [*(fault.at_record for fault in self._run.faults), self._run.record_count]
        feed.send_until(ends[0])
        with Groups(self._cluster.bootstrap, timeout_s=_ANSWER_WITHIN_S) as groups:
            for fault, next_end in zip(self._run.faults, ends[1:], strict=True):
                self._wait_until_through(groups, fault.at_record)
                feed.send_until(next_end)
                self._inject(fault)
            self._doing = "after the last fault"
            self._wait_until_through(groups, self._run.record_count)

    def _inject(self, fault: PlannedFault) -> None:
        self._doing = f"fault {fault.number}, {fault.kind}"
        if fault.target is Target.APPLICATION:
            names = self._applications.names
            name = names[fault.chosen % len(names)]
            self._note(fault, name)
            self._harm_application(fault, name)
            return
        broker_id = self._victim(fault)
        self._note(fault, f"broker {broker_id}")
        self._harm_broker(fault, broker_id)
        if fault.waits_for_sync:
            self._tell("waiting until all are in sync")
            self._wait_in_sync()

    def _harm_application(self, fault: PlannedFault, name: str) -> None:
        if fault.deed is Deed.KILL:
            self._applications.kill(name, fault.point)
            self._pass_time(fault.away_s)
            self._applications.start(name)
        else:
            self._applications.pause(name)
            self._pass_time(fault.away_s)
            self._applications.resume(name)

    def _harm_broker(self, fault: PlannedFault, broker_id: int) -> None:
        match fault.deed:
            case Deed.KILL:
                self._cluster.kill(broker_id)
                self._pass_time(fault.away_s)
                self._cluster.restart(broker_id)
            case Deed.PAUSE:
                self._cluster.pause(broker_id)
                self._pass_time(fault.away_s)
                self._cluster.resume(broker_id)
            case Deed.RESTART:
                self._cluster.restart(broker_id)
            case _:
                assert_never(fault.deed)

    def _victim(self, fault: PlannedFault) -> int:
        """Who has the role now; waits until somebody has."""
        give_up_at = time.monotonic() + _FOUND_WITHIN_S
        while (found := self._find(fault)) is None:
            if time.monotonic() >= give_up_at:
                raise LabError(f"there is no {fault.target} after {_FOUND_WITHIN_S:g} s")
            self._pass_time(_LOOK_INTERVAL_S)
        return found

    def _find(self, fault: PlannedFault) -> int | None:
        partition = fault.chosen % self._run.partition_count
        match fault.target:
            case Target.INPUT_LEADER:
                return self._cluster.view(INPUT).partitions[partition].leader
            case Target.OUTPUT_LEADER:
                return self._cluster.view(OUTPUT).partitions[partition].leader
            case Target.CONTROLLER:
                return self._cluster.view(INPUT).membership.controller_id
            case Target.GROUP_COORDINATOR:
                return self._coordinator(GROUP_ID, GROUP)
            case _:
                names = self._applications.names
                return self._coordinator(names[fault.chosen % len(names)], TRANSACTION)

    def _coordinator(self, key: str, kind: int) -> int | None:
        for address in parse_bootstrap(self._cluster.bootstrap):
            try:
                return find_coordinator(address, key, kind, timeout_s=_ANSWER_WITHIN_S).id
            except ClientError:
                continue
        return None

    # -- after -----------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._tell("waiting for the last transactions")
        self._applications.stop()
        self._wait_in_sync()
        self._wait_until_nothing_is_open()
        self._tell("reading the output")
        self._outcome.verdicts = [
            judge_transform(
                partition,
                expected=[
                    PREFIX + value_of(number)
                    for number in range(
                        partition, self._run.record_count, self._run.partition_count
                    )
                ],
                found=read_committed(self._cluster.bootstrap, OUTPUT, partition),
            )
            for partition in range(self._run.partition_count)
        ]

    def _wait_until_nothing_is_open(self) -> None:
        give_up_at = time.monotonic() + _ENDED_WITHIN_S
        with Admin(self._cluster.bootstrap) as admin:
            partitions = range(self._run.partition_count)
            while True:
                ends = admin.offset_bounds(OUTPUT, partitions)
                stable = admin.last_stable_offsets(OUTPUT, partitions)
                still_open = [
                    each for each in partitions if stable.get(each) != ends[each].end_offset
                ]
                if not still_open:
                    return
                if time.monotonic() >= give_up_at:
                    raise LabError(
                        f"transactions are open in partitions {still_open} of {OUTPUT} "
                        f"{_ENDED_WITHIN_S:g} s after the last application has ended"
                    )
                self._pass_time(_LOOK_INTERVAL_S)

    # -- all along -------------------------------------------------------------------------------

    def _wait_until_through(self, groups: Groups, count: int) -> None:
        give_up_at = time.monotonic() + _STALLED_AFTER_S
        while self._through < count:
            self._applications.replace_those_that_gave_up()
            if self._look(groups):
                give_up_at = time.monotonic() + _STALLED_AFTER_S
            elif time.monotonic() >= give_up_at:
                raise LabError(f"{self._through:,} are through, and no more for two minutes")
            self._pass_time(_LOOK_INTERVAL_S)

    def _look(self, groups: Groups) -> bool:
        """Whether more is through than before."""
        committed = self._committed(groups)
        self._tell("transforming")
        now = time.monotonic()
        silence_s = now - self._progressed_at
        if self._through and silence_s > self._outcome.longest_silence_s:
            self._outcome.longest_silence_s = silence_s
            self._outcome.silent_at = self._doing
        if committed <= self._through:
            return False
        self._through = committed
        self._progressed_at = now
        return True

    def _committed(self, groups: Groups) -> int:
        try:
            offsets = groups.committed(GROUP_ID)
        except ClientError:
            return 0  # Nobody who knows answers at the moment.
        return sum(offset for key, offset in offsets.items() if key.topic == INPUT)

    def _wait_in_sync(self) -> None:
        for topic in (INPUT, OUTPUT):
            self._cluster.wait_in_sync(
                topic, self._run.replication_factor, within_s=_IN_SYNC_WITHIN_S
            )

    def _pass_time(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            if self._watcher.is_cancelled():
                raise StartCancelled("not all records are through yet")
            time.sleep(min(left_s, _LOOK_INTERVAL_S))

    def _note(self, fault: PlannedFault, who: str) -> None:
        away = f", away for {fault.away_s:.1f} s" if fault.away_s else ""
        line = f"{fault.kind}: {who}{away}, at {self._through:,} records"
        self._outcome.injected.append(line)
        with (self._run.folder / "faults.txt").open("a", encoding="utf-8") as history:
            history.write(f"{fault.number:4} {line}\n")
        self._tell(line)

    def _tell(self, doing: str) -> None:
        self._watcher.on_progress(doing, self._through)


def read_committed(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """Everything that was committed in a partition in which nothing is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # What is missing at the start is lost; what is behind it is not.
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        give_up_at = time.monotonic() + _ENDED_WITHIN_S
        while time.monotonic() < give_up_at:
            for message in consumer.consume(1_000, 0.5):
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                elif error.name() == "_PARTITION_EOF":
                    return values
        raise LabError(f"the end of {topic}-{partition} was not reached")
    finally:
        consumer.close()
