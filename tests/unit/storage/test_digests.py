"""D5: ids come from the files beside segments only as far as the log bears them out (F1, F2)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, log_config
from tidelog.base.ids import Offset
from tidelog.records.batch import Codec
from tidelog.records.control import ControlType, TransactionEnd, encode_transaction_end
from tidelog.records.digest import BatchDigest, BatchKind
from tidelog.records.ids import ENTRY, IdSource, fingerprint
from tidelog.records.record import Record, encode_batch
from tidelog.storage import digests as storage_digests
from tidelog.storage import ids_file
from tidelog.storage.digests import (
    DigestReader,
    IdSearch,
    believed,
    first_needed,
    write_ids_file,
)
from tidelog.storage.ids_file import IdsFile, open_ids_file, write_digests
from tidelog.storage.log import Log, LogRead
from tidelog.storage.memory_disk import MemoryDisk
from tidelog.storage.replacement import CleanedSegment

BY_KEY = IdSource(None)
FILE = Path("/folder/00000000000000000000.ids")
TWO_BATCHES = 200


@pytest.fixture
def folder() -> LogFolder:
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    return LogFolder(disk, Path("/folder"), log_config(segment_bytes=TWO_BATCHES))


def keyed(
    offset: int,
    *keys: str,
    at_ms: int = NOW_MS,
    epoch: int = 0,
    codec: Codec = Codec.NONE,
    producer: int = -1,
    is_control: bool = False,
    records: list[Record] | None = None,
) -> bytearray:
    return encode_batch(
        records
        or [Record(offset + at, at_ms, one.encode(), b"v", ()) for at, one in enumerate(keys)],
        leader_epoch=epoch,
        codec=codec,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=-1 if producer < 0 or is_control else 0,
        is_transactional=producer >= 0,
        is_control=is_control,
    )


def append(log: Log, *keys: str, at_ms: int = NOW_MS, epoch: int = 0) -> None:
    append_batch(log, keyed(log.log_end_offset, *keys, at_ms=at_ms, epoch=epoch))


def offsets_of(log: Log, source: IdSource, id_fingerprint: bytes) -> list[tuple[int, int]]:
    search = IdSearch(log, source, id_fingerprint)
    while search.go_on():
        pass
    return search.places


def read_all(log: Log, offset: int = 0) -> list[BatchDigest]:
    reader = DigestReader(log, BY_KEY, Offset(offset))
    found: list[BatchDigest] = []
    while reader.offset < log.log_end_offset:
        found += reader.read(log.log_end_offset)
    return found


def offsets(digests: list[BatchDigest]) -> list[int]:
    return [
        one.base_offset + delta for one in digests for _, delta in ENTRY.iter_unpack(one.entries)
    ]


def files(folder: LogFolder) -> list[str]:
    return sorted(name for name in folder.files() if name.endswith(".ids"))


# -- the file --------------------------------------------------------------------------------------

DIGESTS = st.lists(
    st.builds(
        lambda last, epoch, crc, time_ms, producer, kind, ids: (
            last,
            epoch,
            crc,
            time_ms,
            producer,
            kind,
            b"".join(ENTRY.pack(fingerprint(one), at) for at, one in enumerate(ids)),
        ),
        st.integers(0, 9),
        st.integers(-1, 2**31 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(-1, 2**50),
        st.integers(-1, 2**60),
        st.sampled_from(BatchKind),
        st.lists(st.binary(min_size=1, max_size=5), max_size=4),
    ),
    max_size=6,
)


def in_order(parts: list[tuple[int, int, int, int, int, BatchKind, bytes]]) -> list[BatchDigest]:
    made: list[BatchDigest] = []
    offset = 0
    for last, epoch, crc, time_ms, producer, kind, entries in parts:
        made.append(
            BatchDigest(offset, offset + last, epoch, crc, time_ms, producer, kind, entries)
        )
        offset += last + 1
    return made


def disk_with(digests: list[BatchDigest], source: IdSource = BY_KEY) -> MemoryDisk:
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    disk.make_folder(FILE.parent)
    write(disk, digests, source)
    return disk


def digests_in(disk: MemoryDisk, source: IdSource = BY_KEY) -> list[BatchDigest]:
    """What is read, whichever pieces it is read in; and what it says is the last of it."""
    file = open_ids_file(disk, FILE, source)
    if file is None:
        return []
    everything = Offset(0), Offset(2**62)
    found = [*file.digests(*everything)]
    with patch.object(ids_file, "_READ_BYTES", 100):
        assert [*file.digests(*everything)] == found
    last = file.last(*everything)
    assert last == (found[-1]._replace(entries=b"") if found else None)
    return found


def write(disk: MemoryDisk, digests: Iterable[BatchDigest], source: IdSource = BY_KEY) -> None:
    temporary = write_digests(disk, FILE, source, digests)
    assert temporary is not None
    disk.rename(temporary, FILE)


@given(DIGESTS)
def test_what_was_written_is_read(
    parts: list[tuple[int, int, int, int, int, BatchKind, bytes]],
) -> None:
    digests = in_order(parts)
    assert digests_in(disk_with(digests)) == digests


@given(DIGESTS, st.data())
def test_torn_or_damaged_file_is_read_up_to_there(
    parts: list[tuple[int, int, int, int, int, BatchKind, bytes]], data: st.DataObject
) -> None:
    digests = in_order(parts)
    disk = disk_with(digests)
    whole = bytearray(disk.read_file(FILE))
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[at:]
    else:
        whole[at] ^= 1 << data.draw(st.integers(0, 7))
    disk.replace_file(FILE, bytes(whole))
    found = digests_in(disk)
    assert found == digests[: len(found)]


def test_file_of_another_header_is_not_read() -> None:
    digests = in_order([(0, 0, 0, 0, -1, BatchKind.PLAIN, b"")])
    disk = disk_with(digests, IdSource(b"guid"))
    assert digests_in(disk, IdSource(b"guid")) == digests
    assert digests_in(disk, IdSource(b"other")) == []
    assert digests_in(disk) == []


def test_no_file_is_no_error() -> None:
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    assert digests_in(disk) == []


# -- a log -----------------------------------------------------------------------------------------


def grown(folder: LogFolder, batch_count: int) -> Log:
    log = folder.open_log()
    for number in range(batch_count):
        append(log, f"key-{number}")
    return log


def test_closed_segments_get_a_file_when_they_are_read(folder: LogFolder) -> None:
    log = grown(folder, 6)
    assert len(log.segments) == 3
    digests = read_all(log)
    assert offsets(digests) == [*range(6)]
    assert len(files(folder)) == 2
    assert read_all(log) == digests


def test_reading_from_the_middle_writes_no_half_file(folder: LogFolder) -> None:
    log = grown(folder, 6)
    assert offsets(read_all(log, 1)) == [1, 2, 3, 4, 5]
    assert files(folder) == [log.segments[1].path(".ids").name]


def test_file_of_a_closed_segment_is_what_reading_gives(folder: LogFolder) -> None:
    log = grown(folder, 6)
    write_ids_file(log, log.segments[0], BY_KEY)
    assert [*believed(log, log.segments[0], BY_KEY)] == read_all(log)[:2]
    before = folder.files()
    write_ids_file(log, log.segments[0], BY_KEY)
    assert folder.files() == before


def test_file_is_believed_only_if_its_last_batch_is_in_the_log(folder: LogFolder) -> None:
    """What another leader wrote in place of what was cut off has the same offsets, but not ids."""
    log = grown(folder, 6)
    read_all(log)
    log.truncate_to(Offset(1))
    append(log, "other", epoch=1)
    append(log, "more", epoch=1)
    append(log, "again", epoch=1)
    assert [one.leader_epoch for one in read_all(log)] == [0, 1, 1, 1]
    found = {
        fingerprint_ for one in read_all(log) for fingerprint_, _ in ENTRY.iter_unpack(one.entries)
    }
    assert fingerprint(b"other") in found
    assert fingerprint(b"key-1") not in found


def test_file_that_goes_beyond_the_log_is_believed_as_far_as_that_goes(folder: LogFolder) -> None:
    log = grown(folder, 6)
    read_all(log)
    before = disk_bytes(folder, log)
    log.truncate_to(Offset(1))
    folder.write(log.segments[0].path(".ids").name, before)
    append(log, "other", epoch=1)
    log.roll(producers=(), now_ms=NOW_MS)
    assert [*believed(log, log.segments[0], BY_KEY)] == []
    write_ids_file(log, log.segments[0], BY_KEY)
    assert [one.leader_epoch for one in believed(log, log.segments[0], BY_KEY)] == [0, 1]


def disk_bytes(folder: LogFolder, log: Log) -> bytes:
    return folder.files()[log.segments[0].path(".ids").name]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3)),
            st.tuples(st.just("roll"), st.none()),
            st.tuples(st.just("cut"), st.integers(1, 4)),
        ),
        max_size=15,
    )
)
def check_what_is_read(steps: list[tuple[str, int | None]]) -> None:
    """Whatever was appended, closed and cut off: with files, the same is read as without.

    After a cut another leader goes on, as in a follower's log.
    """
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    log = LogFolder(disk, Path("/folder"), log_config(segment_bytes=TWO_BATCHES)).open_log()
    epoch = 0
    for number, (step, count) in enumerate(steps):
        match step:
            case "append":
                append(log, *(f"{number}-{one}" for one in range(count or 0)), epoch=epoch)
            case "roll":
                log.roll(producers=(), now_ms=NOW_MS)
            case "cut":
                epoch += 1
                log.truncate_to(Offset(max(0, log.log_end_offset - (count or 0))))
        assert read_all(log) == read_without_files(log)


def read_without_files(log: Log) -> list[BatchDigest]:
    reader = DigestReader(log, BY_KEY, Offset(0))
    found: list[BatchDigest] = []
    while reader.offset < log.log_end_offset:
        found += reader.read_log(log.log_end_offset)
    return found


def test_whatever_happened_to_a_log_its_files_say_what_is_in_it() -> None:
    check_what_is_read()


def test_stale_file_that_is_believed_is_found() -> None:
    """Planted here and not in the simulator, which does not get there: it takes a segment that is
    closed again where it ended before. If it ends elsewhere, brokers write the file anew at once.
    """
    with (
        patch.object(storage_digests, "_is_in_log", lambda *_: True),
        pytest.raises(AssertionError),
    ):
        check_what_is_read()


def test_files_go_with_their_segments(folder: LogFolder) -> None:
    log = grown(folder, 6)
    read_all(log)
    log.truncate_to(Offset(3))
    assert files(folder) == ["00000000000000000000.ids", "00000000000000000002.ids"]
    log.detach(log.segments[:1])
    assert offsets(read_all(log)) == [2]


def test_compacted_segment_is_read_anew(folder: LogFolder) -> None:
    log = grown(folder, 6)
    before = read_all(log)
    compact_first(log, kept=0)
    assert read_all(log) == [before[0], *before[2:]]


def compact_first(log: Log, *, kept: int) -> None:
    """One of its two batches stays."""
    cleaned = CleanedSegment(log.disk, log.segments[:1], index_interval_bytes=4096)
    cleaned.create()
    header = next(iter(log.headers_from(Offset(kept))))
    end_offset = Offset(kept + 1)
    read = log.read(Offset(kept), end_offset=end_offset, max_bytes=2**20, at_least_one=True)
    cleaned.append(read.data, header)
    cleaned.decide()
    log.begin_replacing()
    assert log.replace(cleaned, truncation_count=log.truncation_count) is not None


# -- what others do to the log while it is read ----------------------------------------------------


def after_one_read(work: Callable[[], None]) -> AbstractContextManager[object]:
    """Another thread does `work` when the next slice was read and nothing is made of it yet."""
    read_stored, waiting = Log.read_stored, [work]

    def read_and_work(self: Log, offset: Offset, *, end_offset: Offset, max_bytes: int) -> LogRead:
        read = read_stored(self, offset, end_offset=end_offset, max_bytes=max_bytes)
        while waiting:
            waiting.pop()()
        return read

    return patch.object(Log, "read_stored", read_and_work)


def detach_first(log: Log) -> None:
    detached = log.segments[:1]
    log.detach(detached)
    log.remove_detached(detached)


READS: list[Callable[[Log], object]] = [
    read_all,
    lambda log: offsets_of(log, BY_KEY, fingerprint(b"key-0")),
    lambda log: write_ids_file(log, log.segments[0], BY_KEY),
]


@pytest.mark.parametrize("read", READS)
def test_no_file_is_made_of_a_segment_that_is_compacted_meanwhile(
    folder: LogFolder, read: Callable[[Log], object]
) -> None:
    log = grown(folder, 6)
    with after_one_read(lambda: compact_first(log, kept=1)):
        read(log)
    assert not any(name.endswith(".tmp") for name in folder.files())
    assert read_all(log) == read_without_files(log)
    assert offsets_of(log, BY_KEY, fingerprint(b"key-0")) == []


@pytest.mark.parametrize("read", READS)
def test_segment_may_expire_while_it_is_read(
    folder: LogFolder, read: Callable[[Log], object]
) -> None:
    log = grown(folder, 6)
    with after_one_read(lambda: detach_first(log)):
        read(log)
    assert "00000000000000000000.ids" not in folder.files()
    assert offsets(read_all(log)) == [2, 3, 4, 5]


def test_file_is_not_believed_of_a_segment_that_is_compacted_meanwhile(folder: LogFolder) -> None:
    log = grown(folder, 6)
    read_all(log)
    last = IdsFile.last

    def read_and_compact(self: IdsFile, *within: Offset) -> BatchDigest | None:
        found = last(self, *within)
        compact_first(log, kept=1)
        return found

    with patch.object(IdsFile, "last", read_and_compact):
        assert [*believed(log, log.segments[0], BY_KEY)] == []


def test_file_is_read_on_as_it_was_when_its_segment_is_compacted_meanwhile(
    folder: LogFolder,
) -> None:
    log = grown(folder, 6)
    before = read_all(log)
    reader = DigestReader(log, BY_KEY, Offset(0))
    with patch.object(storage_digests, "SLICE_BYTES", 1):
        found = reader.read(log.log_end_offset)
        compact_first(log, kept=1)
        while reader.offset < log.log_end_offset:
            found += reader.read(log.log_end_offset)
    assert found == before


def test_segment_may_expire_while_its_file_is_read(folder: LogFolder) -> None:
    log = grown(folder, 6)
    before = read_all(log)
    reader = DigestReader(log, BY_KEY, Offset(0))
    with patch.object(storage_digests, "SLICE_BYTES", 1):
        found = reader.read(log.log_end_offset)
        detach_first(log)
        while reader.offset < log.log_end_offset:
            found += reader.read(log.log_end_offset)
    assert found == [before[0], *before[2:]]


def test_more_than_memory_should_hold_is_not_gathered(folder: LogFolder) -> None:
    log = grown(folder, 6)
    with (
        patch.object(storage_digests, "SLICE_BYTES", 1),
        patch.object(storage_digests, "GATHERED_BYTES_MAX", 1),
    ):
        assert offsets(read_all(log)) == [*range(6)]
        assert files(folder) == []
        write_ids_file(log, log.segments[0], BY_KEY)
    assert files(folder) == ["00000000000000000000.ids"]
    assert read_all(log) == read_without_files(log)


def test_no_file_is_made_of_what_was_read_before_and_after_a_cut(folder: LogFolder) -> None:
    """It would lack ids: what took the place of the batch that was read and cut off."""
    log = folder.open_log()
    log.reconfigure(log_config(segment_bytes=2**20))
    for number in range(4):
        append(log, f"key-{number}")
    log.roll(producers=(), now_ms=NOW_MS)
    append(log, "key-4")
    reader = DigestReader(log, BY_KEY, Offset(0))
    with patch.object(storage_digests, "SLICE_BYTES", TWO_BATCHES):
        assert offsets(reader.read(log.log_end_offset)) == [0, 1]
    log.truncate_to(Offset(1))
    for number in range(3):
        append(log, f"other-{number}", epoch=1)
    log.roll(producers=(), now_ms=NOW_MS)
    reader.read(log.log_end_offset)
    assert read_all(log) == read_without_files(log)


def test_what_was_gathered_goes_when_its_segment_is_compacted_meanwhile(folder: LogFolder) -> None:
    """A leader keeps its reader for as long as it leads."""
    log = grown(folder, 6)
    reader = DigestReader(log, BY_KEY, Offset(0))
    with patch.object(storage_digests, "SLICE_BYTES", 1):
        reader.read(log.log_end_offset)
        assert reader._gathered is not None
        compact_first(log, kept=1)
        reader.read(log.log_end_offset)
        assert reader._gathered is None


def test_search_ends_when_the_log_is_cut(folder: LogFolder) -> None:
    log = grown(folder, 6)
    search = IdSearch(log, BY_KEY, fingerprint(b"key-5"))
    assert search.go_on()
    log.truncate_to(Offset(1))
    assert not search.go_on()


def test_orphaned_file_is_removed_when_the_log_is_opened(folder: LogFolder) -> None:
    log = grown(folder, 2)
    folder.stop(log)
    folder.write("00000000000000000077.ids", b"whatever")
    folder.open_log(clean=True)
    assert files(folder) == []


def test_batch_that_cannot_be_read_has_no_ids(folder: LogFolder) -> None:
    log = folder.open_log()
    broken = bytearray(keyed(0, "a", codec=Codec.GZIP))
    broken[-4:] = b"\0\0\0\0"
    append_batch(log, broken)
    append(log, "b")
    assert offsets(read_all(log)) == [1]


def test_damaged_segment_is_passed_over(folder: LogFolder) -> None:
    log = grown(folder, 6)
    file = folder.disk.open_existing(log.segments[0].log_path)
    size_bytes = file.size_bytes
    file.truncate(0)
    file.append(bytes(size_bytes))
    assert offsets(read_all(log)) == [2, 3, 4, 5]


# -- where to begin --------------------------------------------------------------------------------


def timed(folder: LogFolder, *times_ms: int) -> Log:
    log = folder.open_log()
    for number, at_ms in enumerate(times_ms):
        append(log, f"key-{number}", at_ms=at_ms)
    return log


@pytest.mark.parametrize(
    ("remembered_ms", "expected"),
    [(1, (4, 1_300)), (200, (4, 1_300)), (201, (2, 1_100)), (600, (0, -1))],
)
def test_reading_begins_where_something_may_still_matter(
    folder: LogFolder, remembered_ms: int, expected: tuple[int, int]
) -> None:
    log = timed(folder, 1_000, 1_100, 1_200, 1_300, 1_400, 1_500)
    assert first_needed(log, remembered_ms=remembered_ms) == expected


def marked(folder: LogFolder, *times_ms: int) -> Log:
    """A segment of a record and a marker for each of the times; markers are a minute later."""
    log = folder.open_log()
    for number, at_ms in enumerate(times_ms):
        offset = log.log_end_offset
        append_batch(log, keyed(offset, f"key-{number}", at_ms=at_ms, producer=7))
        key, value = encode_transaction_end(TransactionEnd(ControlType.COMMIT, 0))
        records = [Record(offset + 1, at_ms + 60_000, key, value, ())]
        append_batch(log, keyed(0, producer=7, is_control=True, records=records))
    return log


def test_markers_are_not_the_time_of_the_log(folder: LogFolder) -> None:
    log = marked(folder, 1_000, 2_000, 61_000)
    assert len(log.segments) == 3
    assert first_needed(log, remembered_ms=60_000) == (0, -1)


def test_what_is_before_all_markers_of_a_time_is_not_read(folder: LogFolder) -> None:
    log = marked(folder, 1_000, 2_000, 100_000_000)
    start, log_time_ms = first_needed(log, remembered_ms=40_000)
    assert (start, log_time_ms) == (log.segments[-1].base_offset, 62_000)


def test_time_of_the_log_does_not_go_back(folder: LogFolder) -> None:
    log = timed(folder, 9_000, 1, 2, 3, 4, 5)
    assert first_needed(log, remembered_ms=1_000) == (0, -1)


# -- where an id is --------------------------------------------------------------------------------


def test_id_is_found_wherever_it_is(folder: LogFolder) -> None:
    log = folder.open_log()
    for at, key in enumerate(("a", "b", "a", "c", "a")):
        append(log, key, at_ms=NOW_MS + at)
    assert offsets_of(log, BY_KEY, fingerprint(b"a")) == [
        (0, NOW_MS),
        (2, NOW_MS + 2),
        (4, NOW_MS + 4),
    ]
    log.advance_log_start(Offset(1))
    assert [offset for offset, _ in offsets_of(log, BY_KEY, fingerprint(b"a"))] == [2, 4]
    assert offsets_of(log, BY_KEY, fingerprint(b"z")) == []


def test_id_in_a_transaction_is_found_once_that_is_committed(folder: LogFolder) -> None:
    log = folder.open_log()
    for offset, producer in enumerate((5, 6, 7)):
        append_batch(log, keyed(offset, "a", producer=producer))
    for producer, control_type in ((5, ControlType.ABORT), (6, ControlType.COMMIT)):
        key, value = encode_transaction_end(TransactionEnd(control_type, 0))
        records = [Record(log.log_end_offset, NOW_MS, key, value, ())]
        append_batch(log, keyed(0, producer=producer, is_control=True, records=records))
    assert [offset for offset, _ in offsets_of(log, BY_KEY, fingerprint(b"a"))] == [1]


def test_two_threads_may_write_the_same_file_at_once() -> None:
    disk = disk_with([])
    digests = [BatchDigest(Offset(0), Offset(0), 0, 7, NOW_MS, -1, BatchKind.PLAIN, b"")]

    def while_another_writes() -> Iterator[BatchDigest]:
        write(disk, digests)
        yield from digests

    write(disk, while_another_writes())
    assert digests_in(disk) == digests
    assert [*disk.list_folder(FILE.parent)] == [FILE.name]
