"""The options of a source, with the names, defaults and precedence of Spark's own (X1).

    which topics     assign | subscribe | subscribePattern                           one of them
    where to begin   startingTimestamp, else startingOffsetsByTimestamp, else startingOffsets
    where to end     the same with `ending`; a batch alone has an end

Whatever is wrong is said in one sentence that names the option, before the job starts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.given_options import flag, in_lower_case, require_no_slips
from tidelog.pipeline.kafka_settings import KafkaSettings, reader_settings
from tidelog.pipeline.offsets import (
    EARLIEST,
    LATEST,
    OFFSET_MAX,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)

MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
FETCH_RETRIES: Final = 3
FETCH_RETRY_INTERVAL_MS: Final = 1_000
READ_TIMEOUT_MS: Final = 120_000

_STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")
_OF_FILES: Final = ("minTimestamp", "maxTimestamp", "ignoreTornTail", "beyondHighWatermark")
KNOWN: Final = (
    *_STRATEGIES,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "commitGroup",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "path",
    *_OF_FILES,
)
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS_MS: Final = {
    unit: size_ms
    for units, size_ms in (
        (" ms millisecond milliseconds", 1),
        ("s sec second seconds", 1_000),
        ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for unit in units.split(" ")
}


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions, and no others."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All partitions of the topics whose whole name matches, now and later."""

    pattern: str


Strategy = Assigned | Subscribed | Matching


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The same place in every partition: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A place for each partition; EARLIEST and LATEST may be among them."""

    offsets: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record of each partition that is not older."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The same with a time for each partition."""

    timestamps_ms: tuple[tuple[TopicPartition, int], ...]


Place = AtOffset | AtOffsets | AtTimestamp | AtTimestamps


class NoMatch(Enum):
    """What to do where no record is as young as a timestamp to begin at."""

    FAIL = "error"
    BEGIN_AT_END = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a job asks for, checked."""

    kafka: KafkaSettings
    strategy: Strategy
    start: Place
    end: Place
    no_match: NoMatch
    fails_on_data_loss: bool
    has_headers: bool
    commit_group: str | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fetch_retries: int
    fetch_retry_interval_ms: int
    read_timeout_ms: int


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Of `spark.read`, where limits of a trigger mean nothing. Raises OptionError."""
    given = GivenOptions(options)
    start, end = batch_places(given)
    return _options(given, start, end)


def batch_places(given: "GivenOptions") -> tuple[Place, Place]:
    """Where a batch begins and ends, wherever it reads from. Raises OptionError."""
    given.require_absent("commitGroup", "only a stream makes progress that could be committed")
    start = given.place("starting", AtOffset(EARLIEST))
    end = given.place("ending", AtOffset(LATEST))
    if start == AtOffset(LATEST):
        raise OptionError("startingOffsets is latest, where a batch would have nothing to read")
    if end == AtOffset(EARLIEST):
        raise OptionError("endingOffsets is earliest, where a batch would have nothing to read")
    _require_no(LATEST, "latest (-1)", "startingOffsets", start)
    _require_no(EARLIEST, "earliest (-2)", "endingOffsets", end)
    return start, end


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Of `spark.readStream`. Raises OptionError."""
    given = GivenOptions(options)
    given.require_absent("path", "files are read as a batch; a stream reads from brokers")
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        given.require_absent(name, "a stream has no end")
    return _options(given, given.place("starting", AtOffset(LATEST)), AtOffset(LATEST))


def _options(given: "GivenOptions", start: Place, end: Place) -> SourceOptions:
    given.require_no_slips()
    for name in _OF_FILES:
        given.require_absent(name, "it is for files, which path names")
    found = SourceOptions(
        kafka=reader_settings(given.lowered),
        strategy=given.strategy(),
        start=start,
        end=end,
        no_match=given.no_match(),
        fails_on_data_loss=given.flag("failOnDataLoss", default=True),
        has_headers=given.flag("includeHeaders", default=False),
        commit_group=given.text("commitGroup"),
        max_offsets_per_trigger=given.count("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.count("minOffsetsPerTrigger"),
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        fetch_retries=given.number("fetchOffset.numRetries", FETCH_RETRIES),
        fetch_retry_interval_ms=given.number(
            "fetchOffset.retryIntervalMs", FETCH_RETRY_INTERVAL_MS
        ),
        read_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", READ_TIMEOUT_MS),
    )
    _require_consistent(found)
    return found


def _require_consistent(options: SourceOptions) -> None:
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger is {least}, which is more than maxOffsetsPerTrigger, {most}"
        )
    require_places_of(options.strategy, options.start, options.end)


def require_places_of(strategy: Strategy | None, start: Place, end: Place) -> None:
    """Raises OptionError if partitions that are assigned are not those that have places."""
    if isinstance(strategy, Assigned):
        for name, place in (("starting", start), ("ending", end)):
            _require_same_partitions(name, strategy.partitions, place)


def _require_same_partitions(name: str, assigned: frozenset[TopicPartition], place: Place) -> None:
    """What is known now already; of topics that are subscribed to it is known later."""
    match place:
        case AtOffsets(given) | AtTimestamps(given):
            require_equal_partitions(option_of(name, place), assigned, dict(given))
        case _:
            pass


def option_of(which: str, place: Place) -> str:
    """The name of the option that says so, `which` being starting or ending."""
    match place:
        case AtOffset() | AtOffsets():
            return f"{which}Offsets"
        case AtTimestamp():
            return f"{which}Timestamp"
        case AtTimestamps():
            return f"{which}OffsetsByTimestamp"


def require_equal_partitions(
    option: str, partitions: frozenset[TopicPartition], given: Mapping[TopicPartition, int]
) -> None:
    """Raises OptionError unless `option` has a place for exactly the partitions that are read."""
    if missing := partitions - given.keys():
        raise OptionError(
            f"{option} says nothing of {min(missing)}, which is to be read: it has to name every "
            "partition, with -2 for the beginning and -1 for the end"
        )
    if others := given.keys() - partitions:
        raise OptionError(f"{option} has {min(others)}, which is not among what is to be read")


def _require_no(offset: int, word: str, option: str, place: Place) -> None:
    if isinstance(place, AtOffsets):
        for partition, given in place.offsets:
            if given == offset:
                raise OptionError(
                    f"{option} has {word} for {partition}, where a batch would have nothing to read"
                )


class GivenOptions:
    """Options by name, whatever the case of the letters: Spark hands them on in lower case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.lowered = in_lower_case(options)

    def text(self, name: str) -> str | None:
        return self.lowered.get(name.lower())

    def require_absent(self, name: str, why: str) -> None:
        if self.text(name) is not None:
            raise OptionError(f"{name} cannot be set: {why}")

    def flag(self, name: str, *, default: bool) -> bool:
        return flag(self.lowered, name, default=default)

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not _is_number(text) or int(text) < 1:
            raise OptionError(f"{name} is {text!r} but must be a number of at least 1")
        return int(text)

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not _is_number(text):
            raise OptionError(f"{name} is {text!r} but must be a number")
        return int(text)

    def timestamp_ms(self, name: str) -> int | None:
        text = self.text(name)
        if text is not None and not _is_number(text):
            raise OptionError(f"{name} is {text!r} but must be milliseconds since 1970")
        return None if text is None else int(text)

    def duration_ms(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        parts = _DURATION.fullmatch(text.strip().lower())
        if parts is None or parts[2] not in _UNITS_MS:
            raise OptionError(f"{name} is {text!r} but must be a duration such as 15m or 30s")
        return int(parts[1]) * _UNITS_MS[parts[2]]

    def has_strategy(self) -> bool:
        return any(self.text(name) is not None for name in _STRATEGIES)

    def strategy(self) -> Strategy:
        given = [name for name in _STRATEGIES if self.text(name) is not None]
        if not given:
            raise OptionError(
                "one of subscribe, subscribePattern and assign must say which topics to read"
            )
        if len(given) > 1:
            raise OptionError(f"{given[0]} and {given[1]} are both set, but only one may be")
        text = (self.text(given[0]) or "").strip()
        match given[0]:
            case "assign":
                return Assigned(parse_partitions("assign", text))
            case "subscribe":
                topics = tuple(sorted({part.strip() for part in text.split(",")} - {""}))
                if not topics:
                    raise OptionError("subscribe is empty: it names topics, with commas in between")
                return Subscribed(topics)
            case _:
                return Matching(_require_pattern(text))

    def place(self, which: str, default: Place) -> Place:
        """Where to begin (`starting`) or to end (`ending`)."""
        if (timestamp_ms := self.timestamp_ms(f"{which}Timestamp")) is not None:
            return AtTimestamp(timestamp_ms)
        if (text := self.text(name := f"{which}OffsetsByTimestamp")) is not None:
            return AtTimestamps(tuple(sorted(parse_timestamps(name, text).items())))
        name = f"{which}Offsets"
        text = self.text(name)
        if text is None:
            return default
        match text.strip().lower():
            case "earliest":
                return AtOffset(EARLIEST)
            case "latest":
                return AtOffset(LATEST)
            case _ if text.strip().startswith("{"):
                return AtOffsets(tuple(sorted(parse_offsets(name, text).items())))
            case _:
                raise OptionError(
                    f"{name} is {text!r} but must be earliest, latest or JSON such as "
                    '{"orders": {"0": 23}}'
                )

    def no_match(self) -> NoMatch:
        name = "startingOffsetsByTimestampStrategy"
        text = self.text(name)
        try:
            return NoMatch("error" if text is None else text.lower())
        except ValueError:
            raise OptionError(f"{name} is {text!r} but must be error or latest") from None

    def require_no_slips(self) -> None:
        require_no_slips(self.lowered, KNOWN)


def _require_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern is {text!r}, no regular expression: {error}") from None
    if not text:
        raise OptionError("subscribePattern is empty")
    return text


def _is_number(text: str) -> bool:
    digits = text.strip()
    return digits.isascii() and digits.isdigit() and len(digits) <= 19 and int(digits) <= OFFSET_MAX
