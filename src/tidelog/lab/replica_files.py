"""What the log files of a partition hold, read from disk as they lie there.

Replicas of a partition may begin at other offsets and roll their segments at other places. From
where all of them have something, they are equal byte for byte, or one of them is wrong (R2).
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import BatchHeader, checksum_matches, iter_headers
from tidelog.storage.layout import LOG


class StoredBatch(NamedTuple):
    """A batch and its bytes."""

    header: BatchHeader
    data: bytes


def stored_batches(folder: Path) -> Iterator[StoredBatch]:
    """The batches in the folder of a partition, in order. A damaged one ends it."""
    # Names have the same number of digits, so their order is that of their offsets.
    try:
        for path in sorted(folder.glob(f"*{LOG}")):
            data = path.read_bytes()
            for position, header in iter_headers(data):
                if not checksum_matches(data, position, header.size_bytes):
                    return
                yield StoredBatch(header, data[position : position + header.size_bytes])
    except CorruptBatch:
        return


def first_difference(folders: Mapping[int, Path]) -> str | None:
    """Where the replicas of a partition, by broker, begin to differ; None if they do not."""
    start = max(_first_offset(folder) for folder in folders.values())
    logs = [
        (batch for batch in stored_batches(folder) if batch.header.base_offset >= start)
        for folder in folders.values()
    ]
    for batches in zip_longest(*logs):
        if len(set(batches)) > 1:
            found = zip(folders, batches, strict=True)
            return "; ".join(f"broker {broker_id}: {_described(each)}" for broker_id, each in found)
    return None


def _first_offset(folder: Path) -> int:
    return next((batch.header.base_offset for batch in stored_batches(folder)), 0)


def _described(batch: StoredBatch | None) -> str:
    if batch is None:
        return "its log has ended"
    header = batch.header
    return (
        f"offsets {header.base_offset} to {header.last_offset}, epoch {header.leader_epoch}, "
        f"{len(batch.data)} bytes, crc {header.crc:#x}"
    )
