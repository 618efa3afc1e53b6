"""Where a group is to go on reading: what may be asked for, and which offsets that means.

An offset outside the log becomes its nearer end, as with Kafka's own tool; whoever asked is shown
the plan before anything happens. Pure: what the cluster knows comes as arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from tidelog.base.errors import ConfigError
from tidelog.client.group_values import PartitionKey
from tidelog.client.values import OffsetBounds


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first record there is."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """After the last record there is."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Where it is; without a commit, after the last record."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """The first record that is not older; after the last one if all are."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many records on, or back if it is negative, from where it is."""

    count: int


@dataclass(frozen=True, slots=True)
class ToGiven:
    """What a file says of each partition."""

    offsets: Mapping[PartitionKey, int]


Reset = ToEarliest | ToLatest | ToCurrent | ToOffset | ToTimestamp | ShiftBy | ToGiven


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """A partition's offset before and after. `asked_for` is outside the log if it differs."""

    key: PartitionKey
    before: int | None
    after: int
    asked_for: int


def plan_reset(
    reset: Reset,
    *,
    bounds: Mapping[PartitionKey, OffsetBounds],
    committed: Mapping[PartitionKey, int],
    at_timestamp: Mapping[PartitionKey, int | None],
) -> list[PlannedOffset]:
    """The new offset of every partition in `bounds`; ConfigError where there is none.

    `at_timestamp` is the cluster's answer for a ToTimestamp; None is "nothing so young".
    """
    return [
        _planned(key, _wanted(reset, key, bound, committed, at_timestamp), bound, committed)
        for key, bound in sorted(bounds.items())
    ]


def _wanted(
    reset: Reset,
    key: PartitionKey,
    bound: OffsetBounds,
    committed: Mapping[PartitionKey, int],
    at_timestamp: Mapping[PartitionKey, int | None],
) -> int:
    match reset:
        case ToEarliest():
            wanted = bound.start_offset
        case ToLatest():
            wanted = bound.end_offset
        case ToCurrent():
            wanted = committed.get(key, bound.end_offset)
        case ToOffset(offset):
            wanted = offset
        case ToTimestamp():
            found = at_timestamp.get(key)
            wanted = bound.end_offset if found is None else found
        case ShiftBy(count):
            if key not in committed:
                raise ConfigError(f"the group has no offset in {key}, from which to shift")
            wanted = committed[key] + count
        case ToGiven(offsets):
            wanted = offsets[key]
        case _:
            assert_never(reset)
    return wanted


def _planned(
    key: PartitionKey,
    wanted: int,
    bound: OffsetBounds,
    committed: Mapping[PartitionKey, int],
) -> PlannedOffset:
    within = min(max(wanted, bound.start_offset), bound.end_offset)
    return PlannedOffset(key=key, before=committed.get(key), after=within, asked_for=wanted)
