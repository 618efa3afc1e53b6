"""What was typed after `tidelog groups reset`: where to go, and which partitions are meant."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.client.group_values import PartitionKey
from tidelog.client.offset_reset import (
    Reset,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToGiven,
    ToLatest,
    ToOffset,
    ToTimestamp,
)

# ISO 8601, as Kafka's tool takes it, less months and years, which have no fixed length.
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?",
    re.ASCII,
)
_UNIT_S: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_DIGITS_MAX: Final = 18


def chosen_reset(
    *,
    to_offset: int | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    from_file: Path | None,
) -> Reset:
    """The one way that was chosen; ConfigError if it is none, or more than one."""
    ways: dict[str, Reset | None] = {
        "--to-offset": None if to_offset is None else ToOffset(to_offset),
        "--to-earliest": ToEarliest() if to_earliest else None,
        "--to-latest": ToLatest() if to_latest else None,
        "--to-current": ToCurrent() if to_current else None,
        "--to-datetime": None if to_datetime is None else ToTimestamp(parse_datetime(to_datetime)),
        "--by-duration": None if by_duration is None else ToTimestamp(_ago(by_duration)),
        "--shift-by": None if shift_by is None else ShiftBy(shift_by),
        "--from-file": None if from_file is None else ToGiven(parse_offsets(from_file)),
    }
    chosen = {option: way for option, way in ways.items() if way is not None}
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} both say where to go")
    if not chosen:
        raise ConfigError(
            "say where to go: --to-earliest, --to-latest, --to-current, --to-offset, "
            "--to-datetime, --by-duration, --shift-by or --from-file"
        )
    (reset,) = chosen.values()
    return reset


def parse_scope(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Topics and their partitions, None for all of them, out of TOPIC and TOPIC:0,1."""
    scope: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.rpartition(":")
        name = topic if colon else text
        if not name:
            raise ConfigError(f"--topic is '{text}' but must be TOPIC or TOPIC:PARTITION,...")
        if name in scope:
            raise ConfigError(f"--topic names {name} twice")
        scope[name] = [_partition(number, text) for number in numbers.split(",")] if colon else None
    return scope


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970; UTC if the text does not say."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"--to-datetime is '{text}' but must be a time like 2026-03-01T12:00:00Z"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(round(moment.timestamp() * 1_000), 0)


def _ago(duration: str) -> int:
    return max(round(time.time() * 1_000) - parse_duration_ms(duration), 0)


def parse_duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration."""
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts or any(len(digits) > _DIGITS_MAX for digits in parts.values()):
        raise ConfigError(f"--by-duration is '{text}' but must be like P1DT2H30M or PT90S")
    return sum(int(digits) * _UNIT_S[unit] for unit, digits in parts.items()) * 1_000


def parse_offsets(path: Path) -> Mapping[PartitionKey, int]:
    """What a file of lines `topic,partition,offset` says, as Kafka's tool exports them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    offsets: dict[PartitionKey, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        parts = [part.strip().strip('"') for part in line.split(",")]
        if len(parts) != 3 or not _are_numbers(parts[1:]):
            raise ConfigError(f"{path}, line {number}: expected topic,partition,offset")
        key = PartitionKey(parts[0], int(parts[1]))
        if key in offsets:
            raise ConfigError(f"{path}, line {number}: {key} is there twice")
        offsets[key] = int(parts[2])
    if not offsets:
        raise ConfigError(f"{path} names no partition")
    return offsets


def _are_numbers(parts: Sequence[str]) -> bool:
    return all(part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX for part in parts)


def _partition(number: str, text: str) -> int:
    if not _are_numbers([number]):
        raise ConfigError(f"--topic is '{text}' but must be TOPIC or TOPIC:PARTITION,...")
    return int(number)
