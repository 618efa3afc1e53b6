"""The options of a sink, and what a data frame must have to be written (X2).

Columns are those of Spark's own Kafka sink: `value`, and if they are there `key`, `headers`,
`topic` and `partition`; others are ignored. Text and bytes are both taken. What is wrong is said in
one sentence that names the option or the column, before anything is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.given_options import flag, in_lower_case, require_no_slips
from tidelog.pipeline.kafka_settings import KafkaSettings, writer_settings

KNOWN: Final = (
    "topic",
    "includeHeaders",
    "includeTimestamp",
    "deliveryGuarantee",
    "transactionalIdPrefix",
    "checkpointLocation",
    "queryName",
    "outputMode",
)
TRANSACTIONAL_ID_PREFIX: Final = "tidelog-spark"
_PREFIX_CHARACTERS_MAX: Final = 128

# The default first.
_RELIABLE: Final = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "enable.idempotence": ("true",),
}

_TEXT: Final = frozenset({"string", "binary"})
_HEADERS: Final = frozenset({"array<struct<key:string,value:binary>>"})
_INTEGER: Final = frozenset({"int"})
_TIMESTAMP: Final = frozenset({"timestamp"})
_TYPES: Final = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": _HEADERS,
    "topic": frozenset({"string"}),
    "partition": _INTEGER,
}


class Guarantee(Enum):
    """What a task that runs again may leave behind."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a job asks for, checked. `guarantee` None: the best that the cluster has."""

    kafka: KafkaSettings
    topic: str | None
    columns: tuple[str, ...]
    """Those to write, in this order."""
    guarantee: Guarantee | None
    transactional_id_prefix: str


def sink_options(options: Mapping[str, str], columns: Mapping[str, str]) -> SinkOptions:
    """`columns`: the type of each by its name, in Spark's words. Raises OptionError."""
    given = in_lower_case(options)
    require_no_slips(given, KNOWN)
    if "path" in given:
        raise OptionError("path cannot be written to, files are only read: topic says where to")
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty: it names the topic to write to")
    keeps_time = flag(given, "includeTimestamp", default=False)
    kafka = writer_settings(given)
    guarantee = _guarantee(given)
    if guarantee is not Guarantee.AT_LEAST_ONCE:
        _require_reliable(kafka)
    return SinkOptions(
        kafka=kafka,
        topic=topic,
        columns=_columns(columns, has_topic=topic is not None, keeps_time=keeps_time),
        guarantee=guarantee,
        transactional_id_prefix=_prefix(given),
    )


def _require_reliable(kafka: KafkaSettings) -> None:
    for name, good in _RELIABLE.items():
        value = kafka.get(name, good[0])
        if value.lower() not in good:
            raise OptionError(
                f"kafka.{name} is {value}, but to write exactly once it has to be {good[0]}: leave "
                "it out, or set deliveryGuarantee to at-least-once"
            )


def _columns(columns: Mapping[str, str], *, has_topic: bool, keeps_time: bool) -> tuple[str, ...]:
    if "value" not in columns:
        raise OptionError("the data frame has no column value, which is what is written")
    if not has_topic and "topic" not in columns:
        raise OptionError(
            "nothing says where to write to: set the option topic, or have a column topic"
        )
    wanted = dict(_TYPES)
    if keeps_time:
        if "timestamp" not in columns:
            raise OptionError(
                "includeTimestamp is true, but the data frame has no column timestamp"
            )
        wanted["timestamp"] = _TIMESTAMP
    for name, types in wanted.items():
        if name in columns and _plain(columns[name]) not in types:
            raise OptionError(
                f"the column {name} is of type {columns[name]} but must be "
                f"{' or '.join(sorted(types))}: cast it"
            )
    return tuple(name for name in wanted if name in columns and not (name == "topic" and has_topic))


def _plain(kind: str) -> str:
    return kind.replace(" ", "").lower()


def _guarantee(given: Mapping[str, str]) -> Guarantee | None:
    text = given.get("deliveryguarantee")
    if text is None:
        return None
    try:
        return Guarantee(text.lower())
    except ValueError:
        raise OptionError(
            f"deliveryGuarantee is {text!r} but must be exactly-once or at-least-once"
        ) from None


def _prefix(given: Mapping[str, str]) -> str:
    prefix = given.get("transactionalidprefix", TRANSACTIONAL_ID_PREFIX)
    if not 0 < len(prefix) <= _PREFIX_CHARACTERS_MAX:
        raise OptionError(
            f"transactionalIdPrefix must have 1 to {_PREFIX_CHARACTERS_MAX} characters"
        )
    return prefix
