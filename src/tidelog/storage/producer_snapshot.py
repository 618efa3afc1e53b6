"""`.snapshot`: the producers of a partition when its log ended at the offset in the file name.

Kafka's format, version 1, big endian:

    version  int16       always 1
    crc      uint32      crc32c of everything after it
    count    int32
    count times: producer id int64, epoch int16, last sequence int32, last offset int64,
                 offset delta int32, timestamp int64, coordinator epoch int32,
                 first offset of the open transaction int64, or -1

Kafka keeps one entry, the last batch, for each producer. We write one for each of the up to five
batches that a retry may repeat, oldest first. Kafka's loader lets the last entry of a producer
win, so it reads ours as its own; and a repeated batch is still recognised after a restart (D2).

A snapshot is written once and never changed. It is flushed together with the log it describes; one
that a crash cut off fails its checksum, and an older one takes its place.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crc32c import crc32c

from tidelog.base.errors import StorageError
from tidelog.base.ids import NO_OFFSET, NO_SEQUENCE, Offset, ProducerEpoch, ProducerId
from tidelog.base.ports import Disk
from tidelog.records.batch import add_to_sequence
from tidelog.records.producer import REMEMBERED_BATCHES_MAX, ProducedBatch, ProducerEntry

_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(StorageError):
    """The snapshot cannot be used. Producer state is rebuilt from an older one and the log."""


def write_snapshot(disk: Disk, path: Path, producers: Sequence[ProducerEntry]) -> None:
    """Not flushed; see the module docstring."""
    file = disk.open(path)
    try:
        file.truncate(0)
        file.append(encode_snapshot(producers))
    finally:
        file.close()


def read_snapshot(disk: Disk, path: Path) -> tuple[ProducerEntry, ...]:
    try:
        return decode_snapshot(disk.read_file(path))
    except CorruptSnapshot as error:
        raise CorruptSnapshot(f"{path}: {error}") from error


def encode_snapshot(producers: Iterable[ProducerEntry]) -> bytes:
    lines = [line for producer in producers for line in _lines(producer)]
    body = _COUNT.pack(len(lines)) + b"".join(lines)
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def _lines(producer: ProducerEntry) -> Iterator[bytes]:
    first_offset = producer.current_txn_first_offset
    rest = (producer.coordinator_epoch, NO_OFFSET if first_offset is None else first_offset)
    names = (producer.producer_id, producer.producer_epoch)
    if not producer.batches:
        # Known by its epoch alone: a transaction marker came before any batch.
        yield _ENTRY.pack(*names, NO_SEQUENCE, NO_OFFSET, 0, producer.last_timestamp_ms, *rest)
        return
    *earlier, last = producer.batches
    for batch in earlier:
        yield _line(names, batch, batch.timestamp_ms, rest)
    yield _line(names, last, producer.last_timestamp_ms, rest)


def _line(
    names: tuple[int, int], batch: ProducedBatch, timestamp_ms: int, rest: tuple[int, int]
) -> bytes:
    offset_delta = batch.last_offset - batch.base_offset
    return _ENTRY.pack(
        *names, batch.last_sequence, batch.last_offset, offset_delta, timestamp_ms, *rest
    )


def decode_snapshot(data: bytes) -> tuple[ProducerEntry, ...]:
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot")
    version, crc = _PREFIX.unpack_from(data, 0)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version}, expected {_VERSION}")
    if crc != crc32c(memoryview(data)[_PREFIX.size :]):
        raise CorruptSnapshot("checksum does not match")
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    entries = data[_PREFIX.size + _COUNT.size :]
    if count * _ENTRY.size != len(entries):
        raise CorruptSnapshot(f"{len(entries)} bytes for {count} entries")
    producers: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(entries):
        producers[fields[0]] = _with_line(producers.get(fields[0]), fields)
    return tuple(producers.values())


def _with_line(known: ProducerEntry | None, fields: tuple[int, ...]) -> ProducerEntry:
    (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp_ms,
        coordinator_epoch,
        first_offset,
    ) = fields
    batches: tuple[ProducedBatch, ...] = ()
    if known is not None and known.producer_epoch == producer_epoch:
        batches = known.batches
    if last_offset >= 0:
        batch = ProducedBatch(
            base_sequence=add_to_sequence(last_sequence, -offset_delta),
            last_sequence=last_sequence,
            base_offset=Offset(last_offset - offset_delta),
            last_offset=Offset(last_offset),
            timestamp_ms=timestamp_ms,
        )
        batches = (*batches, batch)[-REMEMBERED_BATCHES_MAX:]
    return ProducerEntry(
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch),
        coordinator_epoch=coordinator_epoch,
        last_timestamp_ms=timestamp_ms,
        current_txn_first_offset=Offset(first_offset) if first_offset >= 0 else None,
        batches=batches,
    )
