"""Wherever a move between log dirs is interrupted, one place holds all of the log (P1, S6).

The process dies at each of its writes in turn, and the machine too: then what was not flushed may
be gone, in part or as a whole.
"""

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from tests.unit.storage.compacted_folder import Transactions
from tests.unit.storage.log_folder import NOW_MS, append_records, log_config, read_all
from tests.unit.storage.stopping_disk import Died, StoppingDisk
from tidelog.base.errors import StorageError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk
from tidelog.records.record import Record
from tidelog.storage import layout
from tidelog.storage.future_log import BESIDE_LOG, FutureLog, Moved, Source, read_moved, write_moved
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir, open_log_dir
from tidelog.storage.memory_disk import MemoryDisk
from tidelog.storage.opening import Replay

HERE, THERE = Path("/here"), Path("/there")
ORDERS = TopicPartition("orders", 3)
TOPIC_ID = TopicId(UUID(int=7))
CONFIG = log_config(segment_bytes=300)
NAME = layout.future_folder_name(ORDERS, UUID(int=1)) or ""


class Scene:
    """A log in several segments, with an aborted transaction, flushed as a whole."""

    def __init__(self) -> None:
        self.memory = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
        self.disk = StoppingDisk(self.memory)
        self.here, self.there = self.open_dirs()
        self.log = open_orders(self.here)
        append_records(self.log, 12, count=2)
        writer = Transactions(self.log)
        writer.write(7, [(b"a", b"1")])
        writer.end(7, is_abort=True)
        append_records(self.log, 3)
        self.log.note_leader_epochs(((LeaderEpoch(0), Offset(0)),), are_written=False)
        self.log.flush(up_to=self.log.log_end_offset)
        self.here.write_recovery_points({ORDERS: self.log.log_end_offset})
        self.records = read_all(self.log)
        self.producers = writer.entries()

    def open_dirs(self) -> tuple[LogDir, LogDir]:
        return open_dir(self.disk, HERE), open_dir(self.disk, THERE)

    def move(self) -> Log:
        """As `broker/replica_mover.py` does it, in one go."""
        source, future = Source(self.log), self.there.future(NAME)
        future.create(TOPIC_ID)
        copy_closed(source, future)
        self.there.write_future_offsets(
            ORDERS,
            recovery_point=self.log.active_base_offset,
            log_start_offset=self.log.log_start_offset,
            high_watermark=Offset(5),
            cleaner_offset=None,
        )
        future.complete(source.rest(0, self.producers))
        source.mark(Moved(self.there.directory_id, NAME))
        self.there.promote(ORDERS, NAME)
        moved = self.there.open_promoted(
            ORDERS,
            topic_id=TOPIC_ID,
            config=CONFIG,
            log_start_offset=Offset(0),
            now_ms=NOW_MS,
        )
        self.here.finish_delete(self.here.start_delete(self.log))
        self.here.forget_deleted()
        return moved

    def restart(self) -> Log:
        """Finish what was decided, and open the log where it is."""
        here, there = self.open_dirs()
        for one, moved in here.moved().items():
            assert moved is not None
            assert moved.directory_id == there.directory_id
            if (one, moved.future_name) in there.futures():
                there.promote(one, moved.future_name)
            assert one in there.partitions()
            here.finish_delete(here.start_delete_folder(one))
        (place,) = (log_dir for log_dir in (here, there) if ORDERS in log_dir.partitions())
        return open_orders(place)


def copy_closed(source: Source, future: FutureLog) -> None:
    for segment in source.log.segments[:-1]:
        base_offset, size_bytes = segment.base_offset, segment.size_bytes
        for position in range(0, size_bytes, 100):
            data = source.read_log(base_offset, position, min(100, size_bytes - position))
            assert data is not None
            future.write(base_offset, position, data)
        for suffix in BESIDE_LOG:
            part = source.read_beside(base_offset, suffix, 0, 10_000)
            if part is not None:
                assert part.is_last
                future.write_beside(base_offset, suffix, 0, part.data)
        future.finish(base_offset, size_bytes)


def open_dir(disk: Disk, path: Path) -> LogDir:
    return open_log_dir(
        disk,
        path,
        broker_id=BrokerId(1),
        cluster_id="cluster",
        open_files_max=16,
        warn=lambda _sentence: None,
    )


def open_orders(log_dir: LogDir) -> Log:
    return log_dir.open_partition(
        ORDERS,
        topic_id=TOPIC_ID,
        config=CONFIG,
        replay=Replay(restore=lambda _entries, _end: None, observe=lambda _header, _end: None),
        now_ms=NOW_MS,
    ).log


def aborted(log: Log) -> int:
    return len(log.aborted_transactions(Offset(0), end_offset=log.log_end_offset))


def writes_of_a_move() -> tuple[int, int]:
    scene = Scene()
    before = scene.disk.writes
    scene.move()
    return before, scene.disk.writes


FIRST_WRITE, END = writes_of_a_move()


def test_a_move_is_many_writes() -> None:
    assert END - FIRST_WRITE > 60


def test_a_moved_log_is_the_same_to_the_byte() -> None:
    scene = Scene()
    before = {one.log_path.name: scene.disk.read_file(one.log_path) for one in scene.log.segments}
    moved = scene.move()
    assert len(before) > 3
    after = {one.log_path.name: scene.disk.read_file(one.log_path) for one in moved.segments}
    assert after == before
    assert read_all(moved) == scene.records
    assert aborted(moved) == 1
    assert scene.there.high_watermark(ORDERS) == 5
    moved.close(clean=True, producers=scene.producers)
    scene.there.close(clean=True)
    scene.here.close(clean=True)
    assert read_all(scene.restart()) == scene.records


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("stop_at", range(FIRST_WRITE, END))
def test_the_log_is_whole_wherever_a_move_stops(stop_at: int, loses_power: bool) -> None:
    scene = Scene()
    scene.disk.stop_at = stop_at
    with pytest.raises(Died):
        scene.move()
    scene.disk.stop_at = None
    chance = Random(stop_at)
    for _ in range(2):  # And whoever finishes it may be interrupted too.
        records = _restarted(scene, chance, loses_power)
        assert records == scene.records


def _restarted(scene: Scene, chance: Random, loses_power: bool) -> list[Record]:
    if loses_power:
        scene.memory.crash(chance)
    else:
        scene.memory.kill()
    log = scene.restart()
    assert aborted(log) == 1
    return read_all(log)


def test_a_segment_that_is_copied_anew_has_nothing_beside_it() -> None:
    """F2: the log began afresh there, and of what it holds now nothing may be aborted."""
    scene = Scene()
    future = scene.there.future(NAME)
    future.create(TOPIC_ID)
    copy_closed(Source(scene.log), future)
    (base_offset,) = (one.base_offset for one in scene.log.segments if one.has_aborted)
    names = [layout.file_name(base_offset, suffix) for suffix in BESIDE_LOG]
    before = scene.disk.list_folder(THERE / NAME)
    assert layout.file_name(base_offset, layout.TRANSACTION_INDEX) in before
    future.write(base_offset, 0, b"another")
    after = scene.disk.list_folder(THERE / NAME)
    assert sorted(after) == sorted(name for name in before if name not in names)


def test_a_copy_that_is_not_wanted_leaves_nothing() -> None:
    scene = Scene()
    scene.there.future(NAME).create(TOPIC_ID)
    assert scene.there.futures() == ((ORDERS, NAME),)
    assert scene.there.future_topic_id(NAME) == TOPIC_ID
    scene.there.discard_future(ORDERS, NAME)
    assert scene.there.futures() == ()
    assert not [name for name in scene.disk.list_folder(THERE) if name.startswith("orders")]


def test_a_mark_that_says_nothing_is_an_error_of_the_disk() -> None:
    """P7 of docs/internals/storage.md."""
    scene = Scene()
    folder = HERE / str(ORDERS)
    assert read_moved(scene.disk, folder) is None
    write_moved(scene.disk, folder, Moved("id", "name"))
    assert read_moved(scene.disk, folder) == Moved("id", "name")
    for nonsense in (b"", b"[]", b"7", b'{"directory": "id"}', b"\xff"):
        scene.disk.replace_file(folder / layout.MOVED, nonsense)
        with pytest.raises(StorageError):
            read_moved(scene.disk, folder)
    assert scene.here.moved() == {ORDERS: None}
    assert scene.here.partitions() == ()


def test_folders_of_copies_are_named_as_in_kafka() -> None:
    assert NAME == "orders-3.00000000000000000000000000000001-future"
    assert layout.parse_future_folder(NAME) == ORDERS
    for other in ("orders-3-future", "orders-3.1-future", "orders-3", "x.y-future", NAME + "x"):
        assert layout.parse_future_folder(other) is None
    assert layout.future_folder_name(TopicPartition("x" * 249, 0), UUID(int=1)) is None
