"""Records that say who sent them, where to, and which of the sender's records there they are.

    1 4 1207 ......      producer 1, partition 4, its record 1207 there

So every record in a log can be told from every other, and a million of them remembered as numbers.
"""

from typing import Final, NamedTuple, TypeAlias

RecordId: TypeAlias = int
"""Producer and number in one; larger for what the same producer sent later."""
UNKNOWN_RECORD: Final = -1

_VALUE_BYTES: Final = 100
_NUMBER_BITS: Final = 40


class _Words(NamedTuple):
    producer: int
    partition: int
    number: int


def record_value(producer: int, partition: int, number: int) -> bytes:
    """What a record holds."""
    return (b"%d %d %d " % (producer, partition, number)).ljust(_VALUE_BYTES, b".")


def identify_record(value: bytes | None, partition: int) -> RecordId:
    """Which record was found in `partition`; UNKNOWN_RECORD if nobody has sent it there."""
    try:
        words = _Words(*map(int, (value or b"").split(b" ")[:3]))
    except (ValueError, TypeError):
        return UNKNOWN_RECORD
    if words.partition != partition or record_value(*words) != value:
        return UNKNOWN_RECORD
    return record_id(words.producer, words.number)


def record_id(producer: int, number: int) -> RecordId:
    """Of the record `number`, counted from 0, that a producer sent to a partition."""
    return producer << _NUMBER_BITS | number


def producer_of(record: RecordId) -> int:
    return record >> _NUMBER_BITS


def number_of(record: RecordId) -> int:
    return record & (1 << _NUMBER_BITS) - 1


def described(record: RecordId) -> str:
    """A record in words."""
    if record == UNKNOWN_RECORD:
        return "a record of nobody"
    return f"record {number_of(record)} of producer {producer_of(record)}"
