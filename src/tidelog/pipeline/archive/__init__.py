"""A topic as Parquet files, each record in them once, however often the work was interrupted (X4).

What counts is what the manifest says (`manifest`, `manifest_log`; decision 0017). Files are written
by tasks (`chunk_writer`, `data_source`), in ranges that are large enough to be worth a file
(`planning`), and small ones are merged later (`compaction`). `archiver` drives all of it,
`checking` says whether anything is missing, `reading` makes data frames of what was archived.
"""

from tidelog.pipeline.archive.archiver import (
    Archiver,
    ArchiveSettings,
    open_archive,
    require_archive,
)
from tidelog.pipeline.archive.checking import ArchiveReport, check_archive
from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.reading import archived
from tidelog.pipeline.archive.running import archive_topic

__all__ = [
    "ArchiveError",
    "ArchiveReport",
    "ArchiveSettings",
    "Archiver",
    "archive_topic",
    "archived",
    "check_archive",
    "open_archive",
    "require_archive",
]
