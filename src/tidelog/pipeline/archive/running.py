"""Archives a topic until all of it is, or until somebody asks to stop."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.archive.archiver import Archiver, ArchiveSettings, open_archive
from tidelog.pipeline.running import Outcome, Progress, Question, Watch, failure_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.5


def archive_topic(
    spark: "SparkSession",
    settings: ArchiveSettings,
    *,
    is_once: bool = False,
    on_progress: Watch = lambda _progress: None,
    is_stopped: Question = lambda: False,
) -> tuple[Outcome, Archiver]:
    """Archive what is there now, or go on. Raises OptionError, ArchiveError, DataLoss, ClientError.

    Who is asked to stop commits what is being written first.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs the extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        archiver = open_archive(spark, settings)
        return _archived(archiver, is_once, on_progress, is_stopped), archiver
    except (PySparkException, Py4JError) as error:
        raise failure_of(str(error)) from error


def _archived(
    archiver: Archiver, is_once: bool, on_progress: Watch, is_stopped: Callable[[], bool]
) -> Outcome:
    began_s = time.monotonic()
    batch_count = row_count = 0
    counts = {"files": 0, "merged": 0}
    while not is_stopped():
        done = archiver.step(takes_all=is_once)
        if done is None and is_once:
            break
        if done is None:
            time.sleep(_POLL_S)
            continue
        batch_count += 1
        row_count += done.record_count
        counts["files"] += done.file_count
        counts["merged"] += done.merged_count
        on_progress(
            Progress(
                batch=archiver.manifest.version,
                row_count=done.record_count,
                total_row_count=row_count,
                rows_per_s=done.record_count / done.took_s if done.took_s else 0.0,
                lag=archiver.lag,
                batch_s=done.took_s,
                counts={"files": done.file_count, "merged": done.merged_count},
            )
        )
    return Outcome(
        batch_count=batch_count,
        row_count=row_count,
        took_s=time.monotonic() - began_s,
        lag=archiver.lag,
        counts=counts,
        was_stopped=is_stopped(),
    )
