"""A Spark job under kill -9: its driver, its JVM, its workers, and the brokers (X2, X4, B3).

The job copies or archives the input; it is killed again and again, and started anew when it has
ended (`passage.py` has the picture). Each partition of the outcome must hold what the same
partition of the input holds: every record once, in order.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.client.errors import ClientError
from tidelog.client.groups import Groups
from tidelog.lab.broker_outage import BrokerOutage, broker_outage
from tidelog.lab.descendants import descendants
from tidelog.lab.errors import LabError
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
from tidelog.lab.pipeline_job import ARCHIVE, COPY
from tidelog.lab.pipeline_schedule import Outage, PlannedKill, Victim
from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.manifest_log import manifest_of

SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
_REPLICATION_FACTOR: Final = 3
_TOPIC_SETTINGS: Final = {"min.insync.replicas": "2", "retention.ms": "-1"}
_STALLED_AFTER_S: Final = 180.0
_IN_SYNC_WITHIN_S: Final = 60.0
_ANSWER_WITHIN_S: Final = 5.0
# A job that has ended is started anew first, which takes its time on a busy machine.
_FOUND_WITHIN_S: Final = 180.0


class KillableCluster(Protocol):
    """What is done to brokers. `LocalCluster` is one."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self, broker_id: int) -> None: ...
    def restart(self, broker_id: int) -> None: ...
    def wait_in_sync(self, topic: str, replica_count: int, *, within_s: float) -> None: ...
    def complaints(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """What to do. `kind`: COPY or ARCHIVE."""

    kind: str
    folder: Path
    record_count: int
    partition_count: int
    broker_count: int
    kills: tuple[PlannedKill, ...]


@dataclass(slots=True, kw_only=True)
class PipelineOutcome(PassageOutcome):
    """And what became of the job."""

    started: int = 0
    """How often it was started."""
    killed: Counter[Victim] = field(default_factory=Counter)
    amid_outages: int = 0
    """How many kills of the job met a broker that was down, starting or not in sync."""


class PipelineLab:
    """Runs once, on a cluster that is up. Whoever started it stops it."""

    def __init__(self, run: PipelineRun, cluster: KillableCluster, watcher: Watcher) -> None:
        self._run = run
        self._cluster = cluster
        self._outcome = PipelineOutcome()
        self._passage = Passage(
            PassagePlan(
                folder=run.folder,
                history_name="kills.txt",
                record_count=run.record_count,
                partition_count=run.partition_count,
                replication_factor=_REPLICATION_FACTOR,
                topic_settings=_TOPIC_SETTINGS,
            ),
            cluster.bootstrap,
            watcher,
            self._outcome,
        )
        self._job: subprocess.Popen[bytes] | None = None
        self._met: Outage | None = None
        """The outage of a broker that the next kill meets."""
        self._archive = run.folder / "archive"

    def run(self) -> PipelineOutcome:
        with self._passage.watched():
            try:
                self._passage.create_topics()
                self._work_under_kills()
                self._end_job()
                self._passage.judge(made_of=lambda value: value, found_in=self._found)
            finally:
                self._end_job()
        self._outcome.problems += self._cluster.complaints()
        return self._outcome

    # -- kills ------------------------------------------------------------------------------------

    def _work_under_kills(self) -> None:
        with (
            Groups(self._cluster.bootstrap, timeout_s=_ANSWER_WITHIN_S) as groups,
            broker_outage(self._cluster, self._wait_in_sync) as outage,
        ):
            job = Bearers(
                revive=self._have_it_run,
                count_through=lambda: self._done(groups),
                stalled_after_s=_STALLED_AFTER_S,
            )
            self._passage.run(self._run.kills, lambda kill: self._kill(kill, outage), job)
            outage.end()

    def _kill(self, kill: PlannedKill, outage: BrokerOutage) -> None:
        self._passage.doing = f"kill {kill.number}, {kill.victim}"
        if self._met is None:
            outage.end()
        if kill.victim is Victim.BROKER:
            self._kill_broker(kill, outage)
            return
        killed = self._passage.wait_for(
            lambda: self._killed(kill, outage), kill.victim, within_s=_FOUND_WITHIN_S
        )
        away = outage.broker_id
        self._outcome.amid_outages += away is not None
        amid = "" if away is None else f", while broker {away} is away"
        self._note(kill, f"processes {killed}{amid}")
        self._met = None

    def _kill_broker(self, kill: PlannedKill, outage: BrokerOutage) -> None:
        self._passage.pass_time(kill.delay_s)
        broker_id = 1 + kill.chosen % self._run.broker_count
        self._note(kill, f"broker {broker_id}")
        outage.begin(broker_id)
        if kill.outage is Outage.APART:
            outage.end()
        else:
            self._met = kill.outage

    def _killed(self, kill: PlannedKill, outage: BrokerOutage) -> list[int] | None:
        """Who was killed; None if nobody is there, as when the job has given up just now.

        Who has come only now is killed as late as those who were there: amid their work.
        """
        self._have_it_run()
        if not self._pids_of(kill):
            return None
        if self._met is Outage.STARTING:
            outage.come_back()
        self._passage.pass_time(kill.delay_s)
        return [pid for pid in self._pids_of(kill) if _kill_process(pid)] or None

    def _pids_of(self, kill: PlannedKill) -> list[int]:
        job = self._job
        if job is None or job.poll() is not None:
            return []
        below = descendants(job.pid)
        java = [each.pid for each in below if each.is_java]
        if kill.victim is Victim.DRIVER:
            return [job.pid, *(each.pid for each in below)]
        if kill.victim is Victim.JVM:
            return java
        workers = [each.pid for each in below if not each.is_java]
        return [workers[kill.chosen % len(workers)]] if workers else []

    # -- the job ----------------------------------------------------------------------------------

    def _have_it_run(self) -> None:
        """Start it, or start it anew if it has ended, of whatever."""
        if self._job is not None and self._job.poll() is None:
            return
        self._end_job()
        self._outcome.started += 1
        output = OUTPUT if self._run.kind == COPY else str(self._archive)
        with (self._run.folder / "job.log").open("ab") as log:
            self._job = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "tidelog.lab.pipeline_job", self._run.kind),
                    *(self._cluster.bootstrap, INPUT, output, str(self._run.folder / "checkpoint")),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def _end_job(self) -> None:
        job = self._job
        if job is None:
            return
        left = descendants(job.pid)
        job.kill()
        job.wait()
        if job.stdin is not None:
            job.stdin.close()
        for each in left:
            _kill_process(each.pid)
        self._job = None

    # -- what came of it --------------------------------------------------------------------------

    def _found(self, partition: int) -> list[bytes]:
        if self._run.kind == COPY:
            return read_committed(self._cluster.bootstrap, OUTPUT, partition)
        return read_archived(self._archive, partition)

    def _done(self, groups: Groups) -> int:
        done: dict[str, Callable[[], int]] = {
            COPY: lambda: sum(groups.committed(OUTPUT).values()),
            ARCHIVE: lambda: sum(manifest_of(str(self._archive)).next_offsets().values()),
        }
        try:
            return done[self._run.kind]()
        except (ClientError, ArchiveError, OSError):
            return 0  # Nobody who knows answers at the moment, or nothing was begun yet.

    def _wait_in_sync(self) -> None:
        for topic in (INPUT, OUTPUT):
            self._cluster.wait_in_sync(topic, _REPLICATION_FACTOR, within_s=_IN_SYNC_WITHIN_S)

    def _note(self, kill: PlannedKill, who: str) -> None:
        self._outcome.killed[kill.victim] += 1
        self._passage.note(kill.number, f"kill -9 {kill.victim}: {who}")


def read_archived(root: Path, partition: int) -> list[bytes]:
    """The values of a partition, in the order of their offsets. LabError if a file is damaged."""
    try:
        return [value for _, value in sorted(_archived_rows(root, partition))]
    except (ArchiveError, OSError, pa.ArrowException) as error:
        raise LabError(f"the archive cannot be read: {error}") from error


def _archived_rows(root: Path, partition: int) -> Iterator[tuple[int, bytes]]:
    """Offsets and values. Of a chunk, each hour has a file of its own."""
    for chunk in manifest_of(str(root)).chunks.get(partition, ()):
        for file in chunk.files:
            rows = pq.read_table(root / file.path, columns=["offset", "value"])
            yield from zip(
                rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True
            )


def _kill_process(pid: int) -> bool:
    """Whether it was there; it may have ended by itself just now."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
