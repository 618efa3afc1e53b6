"""Where to start and to stop reading: how it is typed, and which offsets it means.

    beginning                     the first record there is
    end                           after the last record there is
    4711                          an offset
    1741000000000, @1741000000    a time in milliseconds since 1970
    2026-03-01T12:00:00+01:00     a time; UTC if it does not say

A bare number below TIMESTAMP_MS_MIN is an offset, from there on it is a time: no partition has held
a million million records, and no clock that Kafka knew showed a time before September 2001. With
`@` in front it is a time whatever its size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, assert_never

from tidelog.base.errors import ConfigError
from tidelog.client.reader import OffsetRange
from tidelog.client.values import OffsetBounds

TIMESTAMP_MS_MIN: Final = 1_000_000_000_000
# Requests have eight bytes for offsets and times.
NUMBER_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AtBeginning:
    """The first record there is."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """After the last record there is."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The record with this offset, or the next one after it."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record that is not older than this."""

    timestamp_ms: int


Position = AtBeginning | AtEnd | AtOffset | AtTimestamp


def parse_position(option: str, text: str) -> Position:
    """What `text` means; ConfigError naming `option` if it means nothing."""
    match text:
        case "beginning":
            return AtBeginning()
        case "end":
            return AtEnd()
    digits = text.removeprefix("@")
    if digits.isascii() and digits.isdigit():
        if len(digits) > len(str(NUMBER_MAX)) or int(digits) > NUMBER_MAX:
            raise ConfigError(f"{option} is '{text}' but must be at most {NUMBER_MAX}")
        number = int(digits)
        is_time = text.startswith("@") or number >= TIMESTAMP_MS_MIN
        return AtTimestamp(number) if is_time else AtOffset(number)
    return AtTimestamp(_parse_iso(option, text))


def resolve_ranges(
    bounds: Mapping[int, OffsetBounds],
    *,
    starts: Mapping[int, int],
    ends: Mapping[int, int] | None,
    is_following: bool,
) -> dict[int, OffsetRange]:
    """The offsets to read of each partition.

    A start outside the log is moved to its nearer end. An end past the log is moved to its end,
    unless the reader is following: then it waits for those offsets to be written.
    """
    ranges = {}
    for partition, bound in bounds.items():
        start = min(max(starts[partition], bound.start_offset), bound.end_offset)
        end = None if ends is None else ends[partition]
        if not is_following:
            end = bound.end_offset if end is None else min(end, bound.end_offset)
        ranges[partition] = OffsetRange(start_offset=start, end_offset=end)
    return ranges


def offsets_of(
    position: Position,
    bounds: Mapping[int, OffsetBounds],
    *,
    at_timestamp: Mapping[int, int | None],
) -> dict[int, int]:
    """The offset that `position` means in each partition.

    `at_timestamp` is the cluster's answer for an AtTimestamp; nothing so young means the end.
    """
    match position:
        case AtBeginning():
            return {partition: bound.start_offset for partition, bound in bounds.items()}
        case AtEnd():
            return {partition: bound.end_offset for partition, bound in bounds.items()}
        case AtOffset(offset):
            return dict.fromkeys(bounds, offset)
        case AtTimestamp():
            found = {partition: at_timestamp.get(partition) for partition in bounds}
            return {
                partition: bounds[partition].end_offset if offset is None else offset
                for partition, offset in found.items()
            }
        case _:
            assert_never(position)


def _parse_iso(option: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{option} is '{text}' but must be beginning, end, an offset, "
            "a time like 2026-03-01T12:00:00Z, or milliseconds since 1970"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    timestamp_ms = round(moment.timestamp() * 1000)
    if timestamp_ms < 0:
        raise ConfigError(f"{option} is '{text}' but records have no time before 1970")
    return timestamp_ms
