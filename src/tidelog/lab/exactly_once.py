"""Exactly once under faults: a cluster, an application in transactions, and a verdict (D3, B3).

Applications transform the input to the output; brokers, coordinators and the applications
themselves are killed, paused and restarted meanwhile (`passage.py` has the picture).

Each partition of the output must hold, for who reads committed records, what the same partition of
the input holds: every record once, in order. And nothing may be left open: what killed applications
had begun has to be ended by their coordinators.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, assert_never

from tidelog.client.admin import Admin
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.coordinators import GROUP, TRANSACTION, find_coordinator
from tidelog.client.errors import ClientError
from tidelog.client.groups import Groups
from tidelog.client.membership import TopicView
from tidelog.lab.applications import Applications
from tidelog.lab.errors import LabError
from tidelog.lab.exactly_once_schedule import Deed, PlannedFault, Target
from tidelog.lab.passage import (
    INPUT,
    OUTPUT,
    Bearers,
    Passage,
    PassageOutcome,
    PassagePlan,
    Watcher,
    read_committed,
)
from tidelog.lab.transformer import PREFIX

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
    """What is done to brokers, and what they say. `LocalCluster` is one."""

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
class ExactlyOnceOutcome(PassageOutcome):
    """And what became of the applications."""

    given_up: int = 0
    """How often an application was fenced or gave up, and was started again."""


class ExactlyOnceLab:
    """Runs once, on a cluster that is up. Whoever started it stops it."""

    def __init__(self, run: ExactlyOnceRun, cluster: BreakableCluster, watcher: Watcher) -> None:
        self._run = run
        self._cluster = cluster
        self._outcome = ExactlyOnceOutcome()
        self._passage = Passage(
            PassagePlan(
                folder=run.folder,
                history_name="faults.txt",
                record_count=run.record_count,
                partition_count=run.partition_count,
                replication_factor=run.replication_factor,
                topic_settings=_TOPIC_SETTINGS,
            ),
            cluster.bootstrap,
            watcher,
            self._outcome,
        )
        self._applications = Applications(run.folder, self._arguments)

    def run(self) -> ExactlyOnceOutcome:
        with self._passage.watched():
            try:
                self._passage.create_topics()
                self._start_applications()
                self._transform_under_faults()
                self._finish()
            finally:
                self._applications.stop()
        self._outcome.problems += self._applications.problems
        self._outcome.problems += self._cluster.complaints()
        self._outcome.given_up = self._applications.given_up
        return self._outcome

    def _start_applications(self) -> None:
        self._passage.tell("starting the applications")
        for number in range(1, self._run.application_count + 1):
            self._applications.start(f"transformer-{number}")

    def _arguments(self, name: str) -> list[str]:
        run = self._run
        return [self._cluster.bootstrap, GROUP_ID, INPUT, OUTPUT, name, run.protocol]

    # -- faults ----------------------------------------------------------------------------------

    def _transform_under_faults(self) -> None:
        with Groups(self._cluster.bootstrap, timeout_s=_ANSWER_WITHIN_S) as groups:
            applications = Bearers(
                revive=self._applications.replace_those_that_gave_up,
                count_through=lambda: _committed(groups),
                stalled_after_s=_STALLED_AFTER_S,
            )
            self._passage.run(self._run.faults, self._inject, applications)

    def _inject(self, fault: PlannedFault) -> None:
        self._passage.doing = f"fault {fault.number}, {fault.kind}"
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
            self._passage.tell("waiting until all are in sync")
            self._wait_in_sync()

    def _harm_application(self, fault: PlannedFault, name: str) -> None:
        if fault.deed is Deed.KILL:
            self._applications.kill(name, fault.point)
            self._passage.pass_time(fault.away_s)
            self._applications.start(name)
        else:
            self._applications.pause(name)
            self._passage.pass_time(fault.away_s)
            self._applications.resume(name)

    def _harm_broker(self, fault: PlannedFault, broker_id: int) -> None:
        match fault.deed:
            case Deed.KILL:
                self._cluster.kill(broker_id)
                self._passage.pass_time(fault.away_s)
                self._cluster.restart(broker_id)
            case Deed.PAUSE:
                self._cluster.pause(broker_id)
                self._passage.pass_time(fault.away_s)
                self._cluster.resume(broker_id)
            case Deed.RESTART:
                self._cluster.restart(broker_id)
            case _:
                assert_never(fault.deed)

    def _victim(self, fault: PlannedFault) -> int:
        """Who has the role now; waits until somebody has."""
        return self._passage.wait_for(
            lambda: self._find(fault), fault.target, within_s=_FOUND_WITHIN_S
        )

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
        self._passage.tell("waiting for the last transactions")
        self._applications.stop()
        self._wait_in_sync()
        self._wait_until_nothing_is_open()
        self._passage.judge(
            made_of=lambda value: PREFIX + value,
            found_in=lambda partition: read_committed(self._cluster.bootstrap, OUTPUT, partition),
        )

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
                self._passage.pass_time(_LOOK_INTERVAL_S)

    def _wait_in_sync(self) -> None:
        for topic in (INPUT, OUTPUT):
            self._cluster.wait_in_sync(
                topic, self._run.replication_factor, within_s=_IN_SYNC_WITHIN_S
            )

    def _note(self, fault: PlannedFault, who: str) -> None:
        away = f", away for {fault.away_s:.1f} s" if fault.away_s else ""
        self._passage.note(fault.number, f"{fault.kind}: {who}{away}")


def _committed(groups: Groups) -> int:
    try:
        offsets = groups.committed(GROUP_ID)
    except ClientError:
        return 0  # Nobody who knows answers at the moment.
    return sum(offset for key, offset in offsets.items() if key.topic == INPUT)
