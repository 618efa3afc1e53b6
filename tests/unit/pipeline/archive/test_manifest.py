"""What an archive holds: chunks that fit each other, and text that says the same."""

import pytest

from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.manifest import (
    ArchivedFile,
    ArchiveInfo,
    Chunk,
    Commit,
    Manifest,
    applied,
    commit_of,
    commit_text,
    first_manifest,
    snapshot_of,
    snapshot_text,
)

INFO = ArchiveInfo(topic="orders", value_schema=None)


def file(first_offset: int, last_offset: int, *, hour: str = "09") -> ArchivedFile:
    return ArchivedFile(
        path=f"date=2026-11-17/hour={hour}/part-{first_offset}.parquet",
        record_count=last_offset - first_offset + 1,
        size_bytes=1_000,
        first_offset=first_offset,
        last_offset=last_offset,
        first_timestamp_ms=1,
        last_timestamp_ms=2,
    )


def chunk(start_offset: int, end_offset: int, *, partition: int = 0) -> Chunk:
    return Chunk(
        partition=partition,
        start_offset=start_offset,
        end_offset=end_offset,
        files=(file(start_offset, end_offset - 1),),
    )


def commit(version: int, *added: Chunk, removed: tuple[Chunk, ...] = ()) -> Commit:
    return Commit(
        version=version, run="r", committed_at_ms=7, info=INFO, added=added, removed=removed
    )


def manifest(*chunks: Chunk) -> Manifest:
    return first_manifest(commit(0, *chunks))


def test_a_run_goes_on_behind_the_last_chunk_of_each_partition() -> None:
    found = manifest(chunk(10, 20), chunk(5, 10), chunk(0, 3, partition=2))
    assert found.next_offsets() == {0: 20, 2: 3}


def test_offsets_cannot_be_archived_twice() -> None:
    before = manifest(chunk(0, 10))
    with pytest.raises(ArchiveError, match="was archived twice"):
        applied(before, commit(1, chunk(9, 12)))


def test_chunks_that_were_merged_are_replaced_in_one_step() -> None:
    before = manifest(chunk(0, 10), chunk(10, 20), chunk(20, 30))
    whole = chunk(0, 20)
    after = applied(before, commit(1, whole, removed=(chunk(0, 10), chunk(10, 20))))
    assert list(after.all_chunks()) == [whole, chunk(20, 30)]


def test_a_version_that_does_not_follow_is_refused() -> None:
    with pytest.raises(ArchiveError, match="does not follow"):
        applied(manifest(), commit(2))


def test_what_was_not_archived_between_chunks_is_a_hole() -> None:
    assert list(manifest(chunk(0, 10), chunk(15, 20)).holes()) == [(0, 10, 15)]


def test_a_commit_is_read_as_it_was_written() -> None:
    written = commit(3, chunk(0, 10), removed=(chunk(20, 30),))
    assert commit_of(commit_text(written)) == written


def test_a_snapshot_is_the_manifest_that_was_written() -> None:
    before = applied(manifest(chunk(0, 10), chunk(0, 5, partition=1)), commit(1, chunk(10, 20)))
    assert snapshot_of(snapshot_text(before)) == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "version": 0}', "not json"]
)
def test_what_is_no_entry_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ArchiveError, match="not an entry of a manifest"):
        commit_of(text)
