"""Whatever a disk does to the files, a log opens with a prefix of what was written, or says no.

Nothing but StorageError comes out, and opening again changes nothing (S6).
"""

from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    batch_at,
    log_config,
    read_all,
)
from tidelog.base.errors import RequestRefused, StorageError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.storage.memory_disk import MemoryDisk

FOLDER = Path("/orders-3")
BATCHES = 24


def written(*, clean: bool) -> LogFolder:
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    partition = LogFolder(disk, FOLDER, log_config(segment_bytes=700, index_interval_bytes=150))
    log = partition.open_log()
    for number in range(BATCHES):
        append_batch(
            log,
            batch_at(
                2 * number,
                2,
                timestamps_ms=[NOW_MS + number * 7 % 10, NOW_MS],
                leader_epoch=number // 10,
                producer_id=5,
                producer_epoch=0,
                base_sequence=2 * number,
            ),
        )
    epochs = ((LeaderEpoch(0), Offset(0)), (LeaderEpoch(1), Offset(20)))
    log.note_leader_epochs(epochs, are_written=False)
    log.close(clean=clean, producers=())
    return partition


def damage(partition: LogFolder, data: st.DataObject) -> None:
    files = partition.files()
    name = data.draw(st.sampled_from(sorted(files)), label="file")
    content = bytearray(files[name])
    position = data.draw(st.integers(0, len(content)), label="position")
    match data.draw(st.sampled_from(["flip", "cut", "extend", "zero", "lose"]), label="damage"):
        case "flip" if position < len(content):
            content[position] ^= 1 << data.draw(st.integers(0, 7), label="bit")
        case "cut":
            del content[position:]
        case "extend":
            content += data.draw(st.binary(min_size=1, max_size=40), label="excess")
        case "zero":
            content[position : position + 64] = bytes(len(content[position : position + 64]))
        case "lose":
            partition.disk.remove(partition.folder / name)
            return
    partition.write(name, bytes(content))


EVERYTHING = [(record.offset, record.value) for record in read_all(written(clean=True).open_log())]


@given(data=st.data(), times=st.integers(1, 3))
def test_recovered_log_is_a_prefix_of_what_was_written(data: st.DataObject, times: int) -> None:
    partition = written(clean=False)
    for _ in range(times):
        damage(partition, data)
    log = partition.open_log(recovery_point=Offset(0))
    found = [(record.offset, record.value) for record in read_all(log)]
    start = found[0][0] if found else 0
    # A lost first file is a later start: what was below it might as well have been deleted.
    assert found == EVERYTHING[start : start + len(found)]
    log.offset_by_timestamp(NOW_MS + 5)
    partition.crash(log)
    files = partition.files()
    partition.crash(partition.open_log(recovery_point=Offset(0)))
    assert partition.files() == files


@given(data=st.data(), times=st.integers(1, 3))
def test_log_that_was_stopped_cleanly_opens_or_says_no(data: st.DataObject, times: int) -> None:
    """What is damaged after a clean stop is not looked for; it may be found when it is read."""
    partition = written(clean=True)
    for _ in range(times):
        damage(partition, data)
    with suppress(StorageError, RequestRefused):
        log = partition.open_log(clean=True)
        for offset in range(log.log_start_offset, log.log_end_offset, 3):
            log.read(
                Offset(offset), end_offset=log.log_end_offset, max_bytes=300, at_least_one=True
            )
        log.offset_by_timestamp(NOW_MS + 5)
        log.offset_of_max_timestamp()
        log.truncate_to(Offset(20))
