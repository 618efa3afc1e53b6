"""Archives a topic until all of it is, or until somebody asks to stop."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.archive.archiver import Archiver, ArchiveSettings, Round, open_archive
from tidelog.pipeline.group_progress import GroupProgress
from tidelog.pipeline.running import Outcome, Progress, Question, Watch, failure_of
from tidelog.pipeline.source_options import stream_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.5


def archive_topic(
    spark: "SparkSession",
    settings: ArchiveSettings,
    *,
    is_once: bool = False,
    group: str | None = None,
    on_progress: Watch = lambda _progress: None,
    is_stopped: Question = lambda: False,
) -> tuple[Outcome, Archiver]:
    """Archive what is there now, or go on. Raises OptionError, ArchiveError, DataLoss, ClientError.

    `group`: a consumer group that is told how far the archive is, so that its lag shows in any
    tool. Who is asked to stop commits what is being written first.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs the extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        archiver = open_archive(spark, settings)
        with _told(group, settings) as tell:
            tell(archiver.manifest.next_offsets())
            return _archived(archiver, is_once, tell, on_progress, is_stopped), archiver
    except (PySparkException, Py4JError) as error:
        raise failure_of(str(error)) from error


Tell = Callable[[Mapping[int, int]], None]
"""Where the archive ends in each partition, told to a group."""


@contextmanager
def _told(group: str | None, settings: ArchiveSettings) -> Iterator[Tell]:
    if group is None:
        yield lambda _ends: None
        return
    kafka = stream_options({**settings.source, "subscribe": settings.topic}).kafka
    with closing(GroupProgress(kafka, group)) as progress:
        yield lambda ends: progress.commit(
            {TopicPartition(settings.topic, partition): at for partition, at in ends.items()}
        )


def _archived(
    archiver: Archiver, is_once: bool, tell: Tell, on_progress: Watch, is_stopped: Question
) -> Outcome:
    began_s = time.monotonic()
    batch_count = row_count = 0
    counts = dict.fromkeys(_counts_of(archiver, None), 0)
    if is_once:
        archiver.fix_ends()
    is_done = False
    while not is_done and not is_stopped():
        done = archiver.step(takes_all=is_once)
        if done is None:
            is_done = is_once
            if not is_done:
                time.sleep(_POLL_S)
            continue
        tell(archiver.manifest.next_offsets())
        is_done = is_once and archiver.lag == 0
        batch_count += 1
        row_count += done.record_count
        counted = _counts_of(archiver, done)
        counts = {name: counts[name] + count for name, count in counted.items()}
        on_progress(
            Progress(
                batch=archiver.manifest.version,
                row_count=done.record_count,
                total_row_count=row_count,
                rows_per_s=done.record_count / done.took_s if done.took_s else 0.0,
                lag=archiver.lag,
                batch_s=done.took_s,
                counts=counted,
            )
        )
    return Outcome(
        batch_count=batch_count,
        row_count=row_count,
        took_s=time.monotonic() - began_s,
        lag=archiver.lag,
        counts=counts,
        was_stopped=not is_done,
    )


def _counts_of(archiver: Archiver, done: Round | None) -> dict[str, int]:
    """Of one round, or of none; what cannot be in an archive of bytes is not counted there."""
    counts = {"files": done.file_count if done else 0, "merged": done.merged_count if done else 0}
    if archiver.manifest.info.value_schema is None:
        return counts
    return {**counts, "unparsed": done.unparsed_count if done else 0}
