"""Files are worth opening: what is taken, and what is merged."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.archive.test_manifest import chunk, commit, manifest
from tidelog.pipeline.archive.manifest import Chunk, Manifest, applied
from tidelog.pipeline.archive.planning import (
    MERGED_COUNT,
    RECORD_BYTES_ASSUMED,
    Backlog,
    all_merges,
    chunk_offsets,
    due_merges,
    taken,
)

TARGET = 1_000_000


def sized(start_offset: int, end_offset: int, size_bytes: int) -> Chunk:
    whole = chunk(start_offset, end_offset)
    return replace(whole, files=(replace(whole.files[0], size_bytes=size_bytes),))


def test_how_many_offsets_fill_a_file_is_learned_from_the_last_chunks() -> None:
    assert chunk_offsets(manifest(), target_bytes=TARGET) == math.ceil(
        TARGET / RECORD_BYTES_ASSUMED
    )
    assert chunk_offsets(manifest(sized(0, 100, 10_000)), target_bytes=TARGET) == 10_000


def test_little_is_left_in_the_topic() -> None:
    assert taken({0: Backlog(5, 14, False)}, chunk_offsets=10, chunk_count_max=4) == {}


def test_little_that_has_waited_is_taken() -> None:
    assert taken({0: Backlog(5, 14, True)}, chunk_offsets=10, chunk_count_max=4) == {0: 14}


def test_whole_chunks_are_taken_and_the_rest_is_left() -> None:
    assert taken({0: Backlog(0, 38, False)}, chunk_offsets=10, chunk_count_max=4) == {0: 30}


def test_a_round_has_a_bound() -> None:
    backlogs = {0: Backlog(0, 1_000, True), 1: Backlog(0, 25, True)}
    assert taken(backlogs, chunk_offsets=10, chunk_count_max=4) == {0: 40}


def test_merges_keep_to_neighbours() -> None:
    """A hole is not closed by merging what is on its sides."""
    before = [sized(n * 10, n * 10 + 10, 100) for n in range(MERGED_COUNT - 1)]
    behind = sized(1_000, 1_010, 100)
    assert due_merges(manifest(*before, behind), target_bytes=TARGET) == []
    follows = sized(before[-1].end_offset, before[-1].end_offset + 10, 100)
    assert due_merges(manifest(*before, follows, behind), target_bytes=TARGET) == [
        (*before, follows)
    ]


def test_large_chunks_are_left_alone() -> None:
    chunks = [sized(n * 10, n * 10 + 10, TARGET) for n in range(20)]
    assert due_merges(manifest(*chunks), target_bytes=TARGET) == []
    assert all_merges(manifest(*chunks), target_bytes=TARGET) == []


def test_to_compact_merges_up_to_the_target() -> None:
    chunks = [sized(n * 10, n * 10 + 10, TARGET // 4) for n in range(6)]
    merges = all_merges(manifest(*chunks), target_bytes=TARGET)
    assert [len(group) for group in merges] == [4, 2]


@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=400))
def test_many_small_runs_leave_few_chunks(sizes: list[int]) -> None:
    """However they come, and each record is rewritten a few times only."""
    found = manifest()
    rewritten_bytes = 0
    for size_bytes in sizes:
        start = found.next_offsets().get(0, 0)
        found = applied(found, commit(found.version + 1, sized(start, start + 1, size_bytes)))
        found, count = _merged(found)
        rewritten_bytes += count
    total = sum(sizes)
    assert found.next_offsets() == {0: len(sizes)}
    size_classes = 1 + max(1, math.ceil(math.log(max(total, 8) / 16_384, MERGED_COUNT)))
    # Between larger ones there may be some that never find neighbours of their size.
    assert len(list(found.all_chunks())) <= 2 * MERGED_COUNT * size_classes + total // (TARGET // 2)
    assert rewritten_bytes <= 8 * total + 16_384 * len(sizes)


def _merged(found: Manifest) -> tuple[Manifest, int]:
    rewritten_bytes = 0
    while due := due_merges(found, target_bytes=TARGET):
        for group in due:
            size_bytes = sum(each.size_bytes for each in group)
            whole = sized(group[0].start_offset, group[-1].end_offset, size_bytes)
            found = applied(found, commit(found.version + 1, whole, removed=group))
            rewritten_bytes += size_bytes
    return found, rewritten_bytes
