"""Batches as the producers of a simulation send them."""

import asyncio
from collections.abc import Sequence

from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.sim.clock import EPOCH_MS

NO_PRODUCER = (-1, -1)
NO_SEQUENCE = -1
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 3_000


def produced_batch(
    contents: Sequence[tuple[bytes | None, bytes]],
    *,
    codec: Codec,
    producer: tuple[int, int],
    base_sequence: int,
    is_transactional: bool,
) -> bytearray:
    """Keys and values, written at this moment by `producer`, which is an id and an epoch."""
    timestamp_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1_000)
    producer_id, epoch = producer
    return encode_batch(
        [
            Record(offset, timestamp_ms, key, value, ())
            for offset, (key, value) in enumerate(contents)
        ],
        leader_epoch=-1,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=False,
    )
