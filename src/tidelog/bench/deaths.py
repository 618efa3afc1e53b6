"""Scenario 5: brokers are killed under a producer that waits for its acknowledgements.

    four brokers, all in sync ──▶ load ──▶ kill -9 ──▶ (restart) ──▶ every partition takes
    records again ──▶ load stops, brokers stop ──▶ the leaders' folders are read

Every round has a cluster of its own: what it holds in the end is all that was sent to it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.bench.client_log import errors_met
from tidelog.bench.disk import judge, read_ledger, stored_numbers
from tidelog.bench.document import DEATHS_SETUP
from tidelog.bench.isr_watch import IsrWatch
from tidelog.bench.load_process import LoadProcess, LoadStarter, survived_from
from tidelog.bench.measured import DeathCase, DiskVerdict, Interruption, Moment
from tidelog.bench.plan import BROKER_COUNT, VALUE_BYTES, LoadPlan
from tidelog.bench.steady import warm_up
from tidelog.bench.subjects import SubjectStarter
from tidelog.bench.tasks import KILLED, RESTARTING, RUNNING, STOP, WHOLE, SendTask, Survived
from tidelog.client.admin import Admin
from tidelog.client.membership import TopicView
from tidelog.client.values import PartitionDescription
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.replica_files import first_difference

TOPIC: Final = "deaths"
_RUNNING_WITHIN_S: Final = 60.0
_WHOLE_WITHIN_S: Final = 120.0
_IN_SYNC_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Deed:
    """What was done, and when by the clock of `time.monotonic_ns`."""

    at_ns: int
    what: str


def measure_deaths(
    starter: SubjectStarter,
    folder: Path,
    case: DeathCase,
    plan: LoadPlan,
    is_cancelled: Callable[[], bool],
) -> Interruption:
    """One round of one row, with a cluster that is started for it."""
    load = LoadStarter(folder, is_cancelled)
    subject = starter.start(folder / "cluster", is_cancelled)
    cluster = subject.cluster
    assert cluster is not None, "only clusters of our own are broken"
    try:
        warm_up(subject, load, plan)
        _create(cluster)
        with IsrWatch(cluster.brokers[0].endpoint, TOPIC) as watch:
            deeds, survived = _interrupt(cluster, load, case, plan, subject.bootstrap)
        view = cluster.view(TOPIC)
    finally:
        subject.stop()
    killed_ns = deeds[0].at_ns
    return Interruption(
        tps_before=survived.tps_before,
        tps_during=survived.tps_during,
        tps_after=survived.tps_after,
        whole_after_s=_since(killed_ns, survived.whole_ns),
        restarted_after_s=_since(killed_ns, deeds[1].at_ns) if case.are_restarted else None,
        acknowledged_while_down=survived.acknowledged_while_down,
        failures=survived.failures,
        retried=_retried(load, case),
        disk=_read_disk(cluster.folder, view, load),
        tps_by_time=tuple(survived.tps_by_time),
        moments=tuple(Moment((each.at_ns - survived.began_ns) / 1e9, each.what) for each in deeds),
        isr=watch.since(survived.began_ns),
    )


def _interrupt(
    cluster: LocalCluster, load: LoadStarter, case: DeathCase, plan: LoadPlan, bootstrap: str
) -> tuple[list[_Deed], Survived]:
    with load.surviving(_task(bootstrap, case, plan)) as process:
        process.wait_for(RUNNING, within_s=_RUNNING_WITHIN_S)
        process.pass_time(plan.before_s)
        deeds = [_kill(cluster, process, case)]
        if case.are_restarted:
            process.pass_time(plan.away_s)
            process.tell(f"{RESTARTING} {time.monotonic_ns()}")
            deeds += [_restart(cluster, broker_id) for broker_id in case.killed]
        if process.wait_for(WHOLE, within_s=_WHOLE_WITHIN_S):
            process.pass_time(plan.after_s)
        process.tell(STOP)
        return deeds, survived_from(process.answer())


def _kill(cluster: LocalCluster, process: LoadProcess, case: DeathCase) -> _Deed:
    for broker_id in case.killed:
        cluster.kill(broker_id)
    at_ns = time.monotonic_ns()
    process.tell(f"{KILLED} {at_ns}")
    return _Deed(at_ns, f"kill {', '.join(map(str, case.killed))}")


def _restart(cluster: LocalCluster, broker_id: int) -> _Deed:
    cluster.restart(broker_id)
    return _Deed(time.monotonic_ns(), f"{broker_id} is back")


def _create(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap, timeout_s=_IN_SYNC_WITHIN_S) as admin:
        admin.create_topic(
            TOPIC,
            partitions=DEATHS_SETUP.partitions,
            replication_factor=DEATHS_SETUP.replicas,
            configs={"min.insync.replicas": str(DEATHS_SETUP.min_insync_replicas)},
        )
    cluster.wait_in_sync(TOPIC, BROKER_COUNT, within_s=_IN_SYNC_WITHIN_S)


def _task(bootstrap: str, case: DeathCase, plan: LoadPlan) -> SendTask:
    return SendTask(
        bootstrap=bootstrap,
        topic=TOPIC,
        partition_count=DEATHS_SETUP.partitions,
        acks=DEATHS_SETUP.acks,
        retries=case.retries,
        is_idempotent=case.is_idempotent,
        in_flight=plan.in_flight,
        value_bytes=VALUE_BYTES,
        lead_in_s=min(plan.lead_in_s, plan.before_s / 2),
        measured_s=0.0,  # Until it is told to stop.
    )


def _since(killed_ns: int, at_ns: int | None) -> float | None:
    return None if at_ns is None else (at_ns - killed_ns) / 1e9


def _retried(load: LoadStarter, case: DeathCase) -> dict[str, int]:
    if not case.retries:
        return {}  # What the client met, its senders were told.
    with load.survivor_log.open(encoding="utf-8", errors="replace") as lines:
        return dict(errors_met(lines))


def _read_disk(folder: ClusterFolder, view: TopicView, load: LoadStarter) -> DiskVerdict:
    logs = {
        each.partition: {
            broker_id: folder.log_dir(broker_id) / f"{TOPIC}-{each.partition}"
            for broker_id in _in_sync(each)
        }
        for each in view.partitions
    }
    found = {partition: first_difference(folders) for partition, folders in logs.items()}
    return judge(
        read_ledger(load.ledger),
        # The first of them leads.
        (stored_numbers(next(iter(folders.values()))) for folders in logs.values()),
        {partition: what for partition, what in found.items() if what is not None},
    )


def _in_sync(partition: PartitionDescription) -> list[int]:
    """Those whose logs count, the leader first."""
    return sorted(partition.isr, key=lambda broker_id: broker_id != partition.leader)
