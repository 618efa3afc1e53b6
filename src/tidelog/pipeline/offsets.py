"""Offsets of many partitions: as options and checkpoints spell them, and how many to take next.

    {"orders": {"0": 23, "1": -2}}      topic, partition, offset; -1 is the end, -2 the beginning

That is what Spark's own Kafka source writes into its checkpoints, so that a job can change its
format and go on. Nothing here asks anybody or reads a clock.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError

LATEST: Final = -1
EARLIEST: Final = -2
OFFSET_MAX: Final = 2**63 - 1

Offsets = Mapping[TopicPartition, int]


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Offsets, LATEST and EARLIEST among them. Raises OptionError naming `option`."""
    offsets = _parse(option, text, "offset")
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise OptionError(
                f"{option} has {offset} for {partition}, but an offset is 0 or more, "
                "-1 for the end or -2 for the beginning"
            )
    return offsets


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """Milliseconds since 1970 in the same shape. Raises OptionError naming `option`."""
    timestamps = _parse(option, text, "timestamp in milliseconds")
    for partition, timestamp_ms in timestamps.items():
        if timestamp_ms < 0:
            raise OptionError(f"{option} has {timestamp_ms} for {partition}: not a timestamp")
    return timestamps


def parse_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """`{"orders": [0, 1]}`. Raises OptionError naming `option`."""
    shape = f'{option} must be JSON such as {{"orders": [0, 1]}}, but is {text!r}'
    topics = _object(text, shape)
    found = []
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_partition(each) for each in numbers):
            raise OptionError(shape)
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise OptionError(f"{option} names no partition")
    return frozenset(found)


def from_checkpoint(offset: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """What `to_checkpoint` made, perhaps by another program."""
    return {
        TopicPartition(topic, int(number)): int(value)
        for topic, partitions in offset.items()
        for number, value in partitions.items()
    }


def to_checkpoint(offsets: Offsets) -> dict[str, dict[str, int]]:
    """In order of topics and partitions, so that equal offsets are equal text."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def count_between(start: Offsets, end: Offsets) -> int:
    """How many offsets there are from `start` to `end`; what is in one of them only counts not."""
    return sum(
        max(0, offset - start[partition]) for partition, offset in end.items() if partition in start
    )


def limited(start: Offsets, end: Offsets, max_count: int) -> dict[TopicPartition, int]:
    """About `max_count` offsets from `start` on, from each partition by how much there is in it.

    No partition starves: one with anything in it is given at least one. `start` has every
    partition of `end`.
    """
    sizes = {
        partition: offset - start[partition]
        for partition, offset in end.items()
        if offset > start[partition]
    }
    total = sum(sizes.values())
    if total <= max_count:
        return dict(end)
    return {
        partition: start[partition] + min(size, max(1, size * max_count // total))
        if (size := sizes.get(partition, 0))
        else offset
        for partition, offset in end.items()
    }


def text_of(partitions: Iterable[TopicPartition]) -> str:
    """For a message: a few of them, and how many more."""
    names = [str(each) for each in sorted(partitions)]
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _parse(option: str, text: str, what: str) -> dict[TopicPartition, int]:
    shape = (
        f'{option} must be JSON such as {{"orders": {{"0": 23, "1": 0}}}} with an {what} for each '
        f"partition, but is {text!r}"
    )
    found = {}
    for topic, partitions in _object(text, shape).items():
        if not isinstance(partitions, dict):
            raise OptionError(shape)
        for number, value in partitions.items():
            if not (number.isascii() and number.isdigit() and len(number) <= 9):
                raise OptionError(shape)
            if isinstance(value, bool) or not isinstance(value, int) or value > OFFSET_MAX:
                raise OptionError(shape)
            found[TopicPartition(topic, int(number))] = value
    return found


def _object(text: str, shape: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError(shape) from None
    if not isinstance(found, dict):
        raise OptionError(shape)
    return found


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31
