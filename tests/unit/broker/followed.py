"""What a leader answers to a follower, said by the test."""

from tests.support.batches import plain_batch
from tests.unit.broker.world import World
from tidelog.base.errors import ErrorCode
from tidelog.broker.follower_runner import FollowerRunner, Verdict
from tidelog.records.batch import read_header, stamp
from tidelog.storage.log import Log
from tidelog.wire.fetch import EpochEndOffset, FetchPartitionResult


def stamped(batch: bytearray, *, offset: int, epoch: int) -> bytes:
    """`batch` as it stands in the log of the leader of `epoch`."""
    copy = bytearray(batch)
    stamp(copy, offset, read_header(copy, 0).batch_length, epoch)
    return bytes(copy)


def records(count: int, *, offset: int, epoch: int) -> bytes:
    """So many batches of one record."""
    return b"".join(
        stamped(plain_batch(1), offset=offset + number, epoch=epoch) for number in range(count)
    )


def answer(
    records: bytes = b"",
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] | None = None,
    partition: int = 0,
) -> FetchPartitionResult:
    return FetchPartitionResult(
        partition,
        error,
        high_watermark,
        high_watermark,
        log_start,
        None,
        None if diverging is None else EpochEndOffset(*diverging),
        None,
        -1,
        records,
    )


def follower_of(world: World, name: str = "t", partition: int = 0) -> FollowerRunner:
    follower = world.runner(name, partition).follower
    assert follower is not None
    return follower


def take(world: World, result: FetchPartitionResult, name: str = "t") -> Verdict:
    """The leader's answer to what the follower would ask now."""
    follower = follower_of(world, name, result.partition)
    return follower.on_answer(follower.position, result)


def stored_bytes(log: Log) -> bytes:
    """Every byte of the log, whoever may read it."""
    stored, offset = b"", log.segments[0].base_offset
    while offset < log.log_end_offset:
        read = log.read(
            max(offset, log.log_start_offset),
            end_offset=log.log_end_offset,
            max_bytes=2**20,
            at_least_one=True,
        )
        stored += bytes(read.data)
        offset = read.end_offset
    return stored
