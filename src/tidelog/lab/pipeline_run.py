"""A Spark job under kill -9: its driver, its JVM, its workers, and the brokers (X2, X4, B3).

    input fed ──▶ the job copies or archives it ──▶ all of it is through ──▶ judged
        ▲              ▲ killed again and again, and started anew when it has ended
        └─ part by part, so that there is work to do whenever somebody is killed

Each partition of the outcome must hold what the same partition of the input holds: every record
once, in order.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pyarrow.parquet as pq

from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.client.groups import Groups
from tidelog.lab.descendants import descendants
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.exactly_once import Watcher, read_committed
from tidelog.lab.exactly_once_verdict import TransformVerdict, judge_transform
from tidelog.lab.input_feed import InputFeed, value_of
from tidelog.lab.pipeline_job import ARCHIVE, COPY
from tidelog.lab.pipeline_schedule import PlannedKill, Victim
from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.reading import manifest_of

INPUT: Final = "input"
OUTPUT: Final = "output"
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
_LOOK_INTERVAL_S: Final = 0.2


class KillableCluster(Protocol):
    """What is done to brokers. `MortalCluster` is one."""

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
class PipelineOutcome:
    """What became of it all."""

    killed: list[str] = field(default_factory=list)
    verdicts: list[TransformVerdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    started: int = 0
    """How often the job was started."""
    took_s: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.problems and all(verdict.is_good for verdict in self.verdicts)


class PipelineLab:
    """Runs once, on a cluster that is up. Whoever started it stops it."""

    def __init__(self, run: PipelineRun, cluster: KillableCluster, watcher: Watcher) -> None:
        self._run = run
        self._cluster = cluster
        self._watcher = watcher
        self._outcome = PipelineOutcome()
        self._through = 0
        self._doing = "starting"
        self._job: subprocess.Popen[bytes] | None = None
        self._archive = run.folder / "archive"

    def run(self) -> PipelineOutcome:
        began_at = time.monotonic()
        try:
            self._prepare()
            with InputFeed(self._cluster.bootstrap, INPUT, self._run.partition_count) as feed:
                self._work_under_kills(feed)
            self._finish()
        except StartCancelled:
            raise
        except (LabError, ClientError, ArchiveError) as error:
            self._outcome.problems.append(f"{self._doing}: {error}")
        finally:
            self._end_job()
        self._outcome.problems += self._cluster.complaints()
        self._outcome.took_s = time.monotonic() - began_at
        return self._outcome

    def _prepare(self) -> None:
        with Admin(self._cluster.bootstrap) as admin:
            for topic in (INPUT, OUTPUT):
                admin.create_topic(
                    topic,
                    partitions=self._run.partition_count,
                    replication_factor=_REPLICATION_FACTOR,
                    configs=_TOPIC_SETTINGS,
                )

    # -- kills ------------------------------------------------------------------------------------

    def _work_under_kills(self, feed: InputFeed) -> None:
        """The n-th is killed when the n-th part is through, and the next one is there."""
        ends = [*(kill.at_record for kill in self._run.kills), self._run.record_count]
        feed.send_until(ends[0] if self._run.kills else self._run.record_count)
        with Groups(self._cluster.bootstrap, timeout_s=_ANSWER_WITHIN_S) as groups:
            for kill, next_end in zip(self._run.kills, ends[1:], strict=True):
                self._wait_until_through(groups, kill.at_record)
                feed.send_until(next_end)
                self._pass_time(kill.delay_s)
                self._kill(kill)
            self._doing = "after the last kill"
            self._wait_until_through(groups, self._run.record_count)

    def _kill(self, kill: PlannedKill) -> None:
        self._doing = f"kill {kill.number}, {kill.victim}"
        if kill.victim is Victim.BROKER:
            broker_id = 1 + kill.chosen % self._run.broker_count
            self._note(kill, f"broker {broker_id}")
            self._cluster.kill(broker_id)
            self._cluster.restart(broker_id)
            self._cluster.wait_in_sync(INPUT, _REPLICATION_FACTOR, within_s=_IN_SYNC_WITHIN_S)
            return
        pids = self._pids_of(kill)
        self._note(kill, f"processes {pids}" if pids else "which is not there")
        for pid in pids:
            _kill_process(pid)

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

    # -- after ------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._tell("reading what came of it")
        self._end_job()
        read = self._copied if self._run.kind == COPY else self._archived
        self._outcome.verdicts = [
            judge_transform(
                partition,
                expected=[
                    value_of(number)
                    for number in range(
                        partition, self._run.record_count, self._run.partition_count
                    )
                ],
                found=read(partition),
            )
            for partition in range(self._run.partition_count)
        ]

    def _copied(self, partition: int) -> list[bytes]:
        return read_committed(self._cluster.bootstrap, OUTPUT, partition)

    def _archived(self, partition: int) -> list[bytes]:
        found: list[tuple[int, bytes]] = []
        for chunk in manifest_of(str(self._archive)).all_chunks():
            if chunk.partition != partition:
                continue
            for file in chunk.files:
                rows = pq.read_table(self._archive / file.path, columns=["offset", "value"])
                found += zip(
                    rows.column("offset").to_pylist(),
                    rows.column("value").to_pylist(),
                    strict=True,
                )
        # Of a chunk, each hour has a file of its own.
        return [value for _, value in sorted(found)]

    # -- all along --------------------------------------------------------------------------------

    def _wait_until_through(self, groups: Groups, count: int) -> None:
        give_up_at = time.monotonic() + _STALLED_AFTER_S
        while self._through < count:
            self._have_it_run()
            done = self._done(groups)
            if done > self._through:
                self._through = done
                give_up_at = time.monotonic() + _STALLED_AFTER_S
            elif time.monotonic() >= give_up_at:
                raise LabError(f"{self._through:,} are through, and no more for three minutes")
            self._tell("working")
            self._pass_time(_LOOK_INTERVAL_S)

    def _done(self, groups: Groups) -> int:
        done: dict[str, Callable[[], int]] = {
            COPY: lambda: sum(groups.committed(OUTPUT).values()),
            ARCHIVE: lambda: sum(manifest_of(str(self._archive)).next_offsets().values()),
        }
        try:
            return done[self._run.kind]()
        except (ClientError, ArchiveError, OSError):
            return 0  # Nobody who knows answers at the moment, or nothing was begun yet.

    def _pass_time(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            if self._watcher.is_cancelled():
                raise StartCancelled("not all records are through yet")
            time.sleep(min(left_s, _LOOK_INTERVAL_S))

    def _note(self, kill: PlannedKill, who: str) -> None:
        line = f"kill -9 {kill.victim}: {who}, at {self._through:,} records"
        self._outcome.killed.append(line)
        with (self._run.folder / "kills.txt").open("a", encoding="utf-8") as history:
            history.write(f"{kill.number:4} {line}\n")
        self._tell(line)

    def _tell(self, doing: str) -> None:
        self._watcher.on_progress(doing, self._through)


def _kill_process(pid: int) -> None:
    with suppress(ProcessLookupError):  # It has just ended by itself.
        os.kill(pid, signal.SIGKILL)
