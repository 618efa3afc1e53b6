"""Batches as producers send them, whole and damaged, for tests of everything that meets one."""

import random
from collections.abc import Sequence

from tidelog.records.batch import (
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    Codec,
    read_header,
    write_checksum,
)
from tidelog.records.record import Record, assemble, encode_batch, encode_plain_batch

NOW_MS = 1_700_000_000_000


def record(offset: int, *, timestamp_ms: int = NOW_MS, key: bytes | None = b"key") -> Record:
    return Record(offset, timestamp_ms, key, b"value-%d" % offset, ())


def plain_batch(
    record_count: int = 3, codec: Codec = Codec.NONE, *, timestamp_ms: int = NOW_MS
) -> bytearray:
    """What a producer without idempotence sends."""
    records = [record(offset, timestamp_ms=timestamp_ms) for offset in range(record_count)]
    return encode_plain_batch(records, codec)


def transactional_batch(
    sequence: int = 0,
    *,
    count: int = 1,
    producer: int = 7,
    epoch: int = 0,
    timestamp_ms: int = NOW_MS,
) -> bytearray:
    """As a producer sends it in a transaction."""
    return encode_batch(
        [
            Record(number, timestamp_ms, b"key", b"value %d" % (sequence + number), ())
            for number in range(count)
        ],
        leader_epoch=-1,
        codec=Codec.NONE,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
        is_control=False,
    )


def idempotent_batch(
    record_count: int = 3,
    *,
    producer_id: int = 1000,
    producer_epoch: int = 0,
    base_sequence: int = 0,
) -> bytearray:
    """What a producer with idempotence sends."""
    return encode_batch(
        [record(offset) for offset in range(record_count)],
        leader_epoch=-1,
        codec=Codec.NONE,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=False,
        is_control=False,
    )


def with_header(batch: bytearray, **changes: int) -> bytearray:
    """`batch` with other header fields, its checksum made right again."""
    header = read_header(batch, 0)._replace(**changes)
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *header)
    write_checksum(changed, 0, len(changed))
    return changed


def with_payload(batch: bytearray, payload: bytes) -> bytearray:
    """`batch` with other bytes behind its header, length and checksum made right again."""
    return assemble(read_header(batch, 0), payload)


def payload_of(batch: bytes | bytearray) -> bytes:
    return bytes(batch[HEADER_SIZE_BYTES:])


def header_of(batch: bytes | bytearray) -> BatchHeader:
    return read_header(batch, 0)


def refused_batches(now_ms: int) -> dict[str, bytes]:
    """One batch for each way in which a producer can be wrong, by what is wrong with it."""
    good = plain_batch(timestamp_ms=now_ms)
    idempotent = with_header(idempotent_batch(), base_timestamp_ms=now_ms, max_timestamp_ms=now_ms)
    attributes = header_of(good).attributes
    flipped = bytearray(good)
    flipped[-1] ^= 1
    old_message = bytearray(34)
    old_message[8:12] = (22).to_bytes(4, "big")
    old_message[16] = 1
    hour_ms = 3_600_000
    cases: dict[str, Sequence[int] | bytearray] = {
        "no bytes": b"",
        "eleven bytes": good[:11],
        "sixteen bytes": good[:16],
        "half a header": good[:40],
        "last byte missing": good[:-1],
        "one byte too many": good + b"\x00",
        "two batches": good + good,
        "a batch and a half": good + good[:70],
        "flipped bit": flipped,
        "batch length negative": with_header(good, batch_length=-1),
        "batch length zero": with_header(good, batch_length=0),
        "batch length 48": with_header(good, batch_length=48),
        "magic 1": old_message,
        "magic 3": with_header(good, magic=3),
        "base offset 7": with_header(good, base_offset=7),
        "record count 0": with_header(good, record_count=0),
        "record count -1": with_header(good, record_count=-1),
        "record count 2 of 3": with_header(good, record_count=2),
        "last offset delta 5 of 3": with_header(good, last_offset_delta=5),
        "last offset delta -1": with_header(good, last_offset_delta=-1),
        "control batch": with_header(good, attributes=attributes | 0x20),
        "codec 5": with_header(good, attributes=attributes | 5),
        "log append time": with_header(good, attributes=attributes | LOG_APPEND_TIME_FLAG),
        "no sequence": with_header(idempotent, base_sequence=-1),
        "no producer epoch": with_header(idempotent, producer_epoch=-1),
        "too large": encode_plain_batch(
            [Record(0, now_ms, None, bytes(1_100_000), ())], Codec.NONE
        ),
        "two hours ahead": plain_batch(timestamp_ms=now_ms + 2 * hour_ms),
        "gzip of nothing": with_header(
            with_payload(good, b"not gzip at all"), attributes=attributes | Codec.GZIP
        ),
    }
    return {name: bytes(batch) for name, batch in cases.items()}


def accepted_batches(now_ms: int) -> dict[str, bytes]:
    """Batches that look unusual and are fine."""
    good = plain_batch(timestamp_ms=now_ms)
    return {
        "plain": bytes(good),
        "no timestamps": bytes(plain_batch(timestamp_ms=-1)),
        "the year 1970": bytes(plain_batch(timestamp_ms=0)),
        "half an hour ahead": bytes(plain_batch(timestamp_ms=now_ms + 1_800_000)),
        "leader epoch 9": bytes(with_header(good, leader_epoch=9)),
        "unused attribute bits": bytes(with_header(good, attributes=0x4000)),
        **{codec.name: bytes(plain_batch(codec=codec, timestamp_ms=now_ms)) for codec in Codec},
        # Larger than a block of snappy (32 KiB) and of lz4 (64 KiB).
        **{f"{codec.name}, many blocks": bytes(large_batch(codec, now_ms)) for codec in Codec},
    }


def large_batch(codec: Codec, timestamp_ms: int) -> bytearray:
    """About 300 KB of records that compress to about half."""
    chance = random.Random(7)
    records = [
        Record(offset, timestamp_ms, b"%d" % offset, chance.randbytes(5_000) + bytes(5_000), ())
        for offset in range(30)
    ]
    return encode_plain_batch(records, codec)
