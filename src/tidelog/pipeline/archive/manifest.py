"""What an archive holds, as a value: which file has which offsets of which partition.

    Chunk     offsets [start, end) of a partition, and the files that hold its records
    Commit    chunks that came, and chunks whose place they took
    Manifest  all that counts after some commits

A chunk has as many files as there are hours among its records; none at all if no record is left of
its offsets (markers of transactions, aborted records, compacted topics). Chunks, not files, say
which offsets were archived, so that a gap between records is told from a gap in the archive.

Invariants of a manifest:

    I1  chunks of a partition are in order of their offsets and do not overlap
    I2  no file is in two chunks

That chunks follow each other without a gap is not among them: retention may have been faster, and
it was said to go on. `holes` says where. Everything here is JSON that people can read; nothing
touches a file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from tidelog.pipeline.archive.errors import ArchiveError

FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A Parquet file. Its records are in order of their offsets."""

    path: str
    """Below the archive's folder."""
    record_count: int
    size_bytes: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    """The smallest and the largest; records need not be in order of time."""
    last_timestamp_ms: int

    @property
    def hour(self) -> str:
        """The folder that it is in: `date=2026-11-17/hour=09`."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Offsets `[start_offset, end_offset)` of a partition, archived."""

    partition: int
    start_offset: int
    end_offset: int
    files: tuple[ArchivedFile, ...]
    """In order of hours, then of offsets."""

    @property
    def offset_count(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def record_count(self) -> int:
        return sum(each.record_count for each in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)

    def __str__(self) -> str:
        return f"partition {self.partition} from {self.start_offset} to {self.end_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveInfo:
    """What was decided when the archive was made, and holds for all of it."""

    topic: str
    value_schema: str | None
    """Of JSON values, in Spark's words; None: values are kept as bytes."""
    topic_id: str | None = None
    """Which topic of that name; None if the cluster has no ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One step of an archive's history."""

    version: int
    run: str
    """Who did it. Files of other runs that are in no manifest are left over."""
    committed_at_ms: int
    info: ArchiveInfo
    added: tuple[Chunk, ...]
    removed: tuple[Chunk, ...]
    """Whose records are in `added` now, in other files or in some of the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that counts."""

    version: int
    info: ArchiveInfo
    run: str
    chunks: Mapping[int, tuple[Chunk, ...]] = field(default_factory=dict)
    """By partition, in order."""

    def all_chunks(self) -> Iterator[Chunk]:
        for partition in sorted(self.chunks):
            yield from self.chunks[partition]

    def files(self) -> Iterator[ArchivedFile]:
        for chunk in self.all_chunks():
            yield from chunk.files

    def next_offsets(self) -> dict[int, int]:
        """Behind what was archived of each partition."""
        return {partition: chunks[-1].end_offset for partition, chunks in self.chunks.items()}

    def holes(self) -> Iterator[tuple[int, int, int]]:
        """Partition, start and end of what lies between chunks and was not archived."""
        for partition in sorted(self.chunks):
            for before, after in pairwise(self.chunks[partition]):
                if before.end_offset < after.start_offset:
                    yield partition, before.end_offset, after.start_offset


def first_manifest(commit: Commit) -> Manifest:
    """After the commit that makes an archive."""
    assert commit.version == 0
    return _with_chunks(commit, list(commit.added))


def applied(manifest: Manifest, commit: Commit) -> Manifest:
    """After one more commit. Raises ArchiveError if it does not fit."""
    if commit.version != manifest.version + 1:
        raise ArchiveError(f"commit {commit.version} does not follow {manifest.version}")
    removed = {(each.partition, each.start_offset, each.end_offset) for each in commit.removed}
    kept = [
        each
        for each in manifest.all_chunks()
        if (each.partition, each.start_offset, each.end_offset) not in removed
    ]
    return _with_chunks(commit, [*kept, *commit.added])


def _with_chunks(commit: Commit, chunks: list[Chunk]) -> Manifest:
    found: dict[int, list[Chunk]] = {}
    for chunk in sorted(chunks, key=lambda each: (each.partition, each.start_offset)):
        of_partition = found.setdefault(chunk.partition, [])
        if of_partition and of_partition[-1].end_offset > chunk.start_offset:
            raise ArchiveError(f"{chunk} was archived twice: {of_partition[-1]} is there too")
        of_partition.append(chunk)
    return Manifest(
        version=commit.version,
        info=commit.info,
        run=commit.run,
        chunks={partition: tuple(each) for partition, each in found.items()},
    )


# -- as text ---------------------------------------------------------------------------------------


def commit_text(commit: Commit) -> str:
    return json.dumps({"format": FORMAT, **asdict(commit)})


def commit_of(text: str) -> Commit:
    """Raises ArchiveError if it is none."""
    try:
        found = _object(text)
        return Commit(
            version=found["version"],
            run=found["run"],
            committed_at_ms=found["committed_at_ms"],
            info=ArchiveInfo(**found["info"]),
            added=_chunks(found["added"]),
            removed=_chunks(found["removed"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"not an entry of a manifest: {error}") from error


def snapshot_text(manifest: Manifest) -> str:
    """All of it at once, as the commit that would make it out of nothing."""
    whole = Commit(
        version=manifest.version,
        run=manifest.run,
        committed_at_ms=0,
        info=manifest.info,
        added=tuple(manifest.all_chunks()),
        removed=(),
    )
    return commit_text(whole)


def snapshot_of(text: str) -> Manifest:
    """Raises ArchiveError if it is none."""
    whole = commit_of(text)
    made = _with_chunks(replace(whole, version=0), list(whole.added))
    return replace(made, version=whole.version)


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    return found


def _chunks(found: Iterable[dict[str, Any]]) -> tuple[Chunk, ...]:
    return tuple(
        Chunk(
            partition=each["partition"],
            start_offset=each["start_offset"],
            end_offset=each["end_offset"],
            files=tuple(ArchivedFile(**file) for file in each["files"]),
        )
        for each in found
    )
