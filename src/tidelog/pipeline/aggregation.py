"""What to make of a topic's records in windows of time, as values: no Spark is needed for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidelog.client.record_fields import JsonField, RecordField


class Output(StrEnum):
    """What the target is: a topic, or a folder."""

    TOPIC = "topic"
    PARQUET = "parquet"


class Mode(StrEnum):
    """When a row is written: each time it has changed, or once, when it cannot change any more."""

    UPDATE = "update"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """What to make of records. Durations are in Spark's words: `1 minute`."""

    window: str
    slide: str | None
    """How far the next window begins behind this one; None: where it ends."""
    watermark: str
    group_by: RecordField | None
    measured: RecordField | None
    event_time: JsonField | None
    """A field with milliseconds since 1970 or an ISO timestamp; None: the record's timestamp."""
    percentiles: Sequence[float]
    """Of the measured number, in percent."""

    def described(self) -> dict[str, str]:
        """What decides on the rows, but for how late is too late; by the names of options."""
        return {
            "window": self.window,
            "slide": self.slide or self.window,
            "by": _named(self.group_by),
            "value": _named(self.measured),
            "time": _named(self.event_time),
            "percentiles": ",".join(f"{percent:g}" for percent in self.percentiles),
        }


def _named(field: RecordField | None) -> str:
    return "none" if field is None else str(field)
