"""What a load generator is asked to do, and what it answers: both travel as JSON."""

from dataclasses import dataclass
from typing import Final

RUNNING: Final = "running"
"""Printed once the load is on."""
WHOLE: Final = "whole"
"""Printed once every partition has taken a record that was sent after the kill."""
KILLED: Final = "killed"
RESTARTING: Final = "restarting"
STOP: Final = "stop"
"""Lines that tell a load what has been done to brokers, the first two with a time; and to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTask:
    """Send for a while, with so many records under way at a time."""

    bootstrap: str
    topic: str
    partition_count: int
    acks: int
    retries: int
    is_idempotent: bool
    in_flight: int
    value_bytes: int
    lead_in_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeTask:
    """Read all partitions from their start, and note when each record came."""

    bootstrap: str
    topic: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What came of a SendTask. Latencies are those of records sent in the time that counts."""

    tps: float
    total_count: int
    """Of all records, those of the lead-in too."""
    client_cpu_us: float
    first_counted: int
    """The number of the first record that counts."""
    counted: int
    latencies: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survived:
    """What came of a SendTask that was told of kills; its ledger is a file of offsets."""

    began_ns: int
    tps_before: float
    tps_during: float
    tps_after: float | None
    whole_ns: int | None
    acknowledged_while_down: int
    failures: dict[str, int]
    tps_by_time: list[float]
