"""What a log holds against what its producers and consumers believe.

A record that was acknowledged is in the log, once, at the offset that was acknowledged; records of
one producer are in the order in which they were sent; and what a consumer has read is what the log
holds in that place. Records that were sent and not acknowledged may be in the log or not.

Nothing here reads a file or a clock: whoever has read the log hands over what it holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.lab.record_names import (
    UNKNOWN_RECORD,
    RecordId,
    described,
    number_of,
    producer_of,
    record_id,
)

NOT_ACKNOWLEDGED: Final = -1
_EXAMPLES_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionVerdict:
    """How many records of one partition are not as they should be; `examples` says which."""

    partition: int
    stored: int
    acknowledged: int
    lost: int
    duplicated: int
    reordered: int
    unexpected: int
    undone: int
    """Read by a consumer, and not there any more."""
    difference: str | None
    """Where its replicas differ."""
    examples: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        wrong = self.lost + self.duplicated + self.reordered + self.unexpected + self.undone
        return not wrong and self.difference is None


def judge(
    partition: int,
    *,
    stored: Sequence[RecordId],
    acknowledged: Mapping[int, Sequence[int]],
    consumed: Sequence[Sequence[RecordId]],
    difference: str | None,
) -> PartitionVerdict:
    """The verdict on one partition.

    `stored` has the record at each offset; `acknowledged`, by producer, the offset of each record
    that it sent; `consumed`, by consumer, the record that it has read at each offset.
    """
    lost = list(_lost(stored, acknowledged))
    duplicated = list(_duplicated(stored))
    reordered = list(_reordered(stored))
    unexpected = list(_unexpected(stored, acknowledged))
    undone = [each for records in consumed for each in _undone(stored, records)]
    findings = (lost, duplicated, reordered, unexpected, undone)
    return PartitionVerdict(
        partition=partition,
        stored=len(stored),
        acknowledged=sum(
            offset != NOT_ACKNOWLEDGED for offsets in acknowledged.values() for offset in offsets
        ),
        lost=len(lost),
        duplicated=len(duplicated),
        reordered=len(reordered),
        unexpected=len(unexpected),
        undone=len(undone),
        difference=difference,
        examples=tuple(example for found in findings for example in found[:_EXAMPLES_MAX]),
    )


def _lost(stored: Sequence[RecordId], acknowledged: Mapping[int, Sequence[int]]) -> Iterable[str]:
    for producer, offsets in acknowledged.items():
        for number, offset in enumerate(offsets):
            record = record_id(producer, number)
            if offset != NOT_ACKNOWLEDGED and stored[offset : offset + 1] != [record]:
                yield (
                    f"{described(record)} was acknowledged at offset {offset}, which is "
                    f"{_at(stored, offset)}"
                )


def _duplicated(stored: Sequence[RecordId]) -> Iterable[str]:
    first: dict[RecordId, int] = {}
    for offset, record in enumerate(stored):
        if record != UNKNOWN_RECORD and first.setdefault(record, offset) != offset:
            yield f"{described(record)} is at offset {first[record]} and again at {offset}"


def _reordered(stored: Sequence[RecordId]) -> Iterable[str]:
    latest: dict[int, RecordId] = {}
    for offset, record in enumerate(stored):
        producer = producer_of(record)
        before = latest.setdefault(producer, record)
        if record < before and record != UNKNOWN_RECORD:
            yield f"{described(record)} is at offset {offset}, behind {described(before)}"
        latest[producer] = max(before, record)


def _unexpected(
    stored: Sequence[RecordId], acknowledged: Mapping[int, Sequence[int]]
) -> Iterable[str]:
    for offset, record in enumerate(stored):
        sent = acknowledged.get(producer_of(record), ())
        if record == UNKNOWN_RECORD or number_of(record) >= len(sent):
            yield f"offset {offset} is {described(record)}, which nobody has sent"


def _undone(stored: Sequence[RecordId], consumed: Sequence[RecordId]) -> Iterable[str]:
    for offset, record in enumerate(consumed):
        if stored[offset : offset + 1] != [record]:
            yield (
                f"a consumer has read {described(record)} at offset {offset}, which is "
                f"{_at(stored, offset)}"
            )


def _at(stored: Sequence[RecordId], offset: int) -> str:
    return described(stored[offset]) if offset < len(stored) else "behind the end"
