"""How an application's producer behaves: the settings of P2, and what librdkafka is told.

`producer.type` is `sync`, which sends a record and waits until it is stored, or `async`, which
queues it and sends many at once. Four settings shape the queue of the latter, with the meaning and
the defaults they had in Kafka's first producer:

    queue.buffering.max.ms          how long a record may wait for others
    queue.buffering.max.messages    how many may be queued; counted until they are acknowledged
    queue.enqueue.timeout.ms        what becomes of a record when the queue is full:
                                       0 it is dropped, -1 its sender waits, n it waits that long
    batch.num.messages              that many for a partition are sent before the time is over

The profile `reliable` is the document's high-reliability producer (D4): acks=all, idempotent, and
nothing is dropped. A setting that contradicts it is refused rather than overruled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.client.bootstrap import DEFAULT_BOOTSTRAP

DROP_AT_ONCE: Final = 0
WAIT_FOR_EVER: Final = -1
PRODUCER_TYPES: Final = ("sync", "async")
PROFILES: Final = (None, "reliable")

_ALL: Final = frozenset({"all", "-1"})
_ACKS: Final = _ALL | {"0", "1"}
# librdkafka's own bounds, so that a refusal speaks of the setting that was given.
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "queue.buffering.max.ms": (0, 900_000),
    "queue.buffering.max.messages": (1, 2_147_483_647),
    "queue.enqueue.timeout.ms": (WAIT_FOR_EVER, 2_147_483_647),
    "batch.num.messages": (1, 1_000_000),
    "delivery.timeout.ms": (1, 2_147_483_647),
}

# librdkafka's other names of what an argument gives, and what follows from one.
_ARGUMENTS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap",
    "metadata.broker.list": "bootstrap",
    "request.required.acks": "acks",
    "compression.codec": "compression_type",
    "message.timeout.ms": "delivery_timeout_ms",
    "linger.ms": "queue_buffering_max_ms",
    "delivery.report.only.error": "on_delivery",
}

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Checked once, then frozen. Names are Kafka's with `_` for `.`; `others` are librdkafka's."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    producer_type: str = "sync"
    profile: str | None = None
    acks: str = "all"
    # None: whenever acks=all, as in Kafka.
    enable_idempotence: bool | None = None
    compression_type: str = "none"
    delivery_timeout_ms: int = 120_000
    queue_buffering_max_ms: int = 5_000
    queue_buffering_max_messages: int = 10_000
    queue_enqueue_timeout_ms: int = WAIT_FOR_EVER
    batch_num_messages: int = 200
    others: Mapping[str, Value] | None = None

    def __post_init__(self) -> None:
        _require_one_of("producer.type", self.producer_type, PRODUCER_TYPES)
        _require_one_of("profile", self.profile, PROFILES)
        _require_one_of("acks", self.acks, sorted(_ACKS))
        for name in _BOUNDS:
            _require_within(name, getattr(self, name.replace(".", "_")))
        self._require_no_second_opinion()
        if not self.is_sync and self.delivery_timeout_ms <= self.queue_buffering_max_ms:
            raise ConfigError(
                f"delivery.timeout.ms is {self.delivery_timeout_ms} but must be more than "
                f"queue.buffering.max.ms ({self.queue_buffering_max_ms}), the time in the queue"
            )
        if self.enable_idempotence and self.acks not in _ALL:
            raise ConfigError(f"enable.idempotence needs acks=all, but acks is {self.acks}")
        if self.profile == "reliable":
            self._require_reliable()

    @property
    def is_sync(self) -> bool:
        return self.producer_type == "sync"

    @property
    def is_idempotent(self) -> bool:
        if self.enable_idempotence is None:
            return self.acks in _ALL
        return self.enable_idempotence

    def for_librdkafka(self) -> dict[str, Value]:
        """The same in librdkafka's words."""
        return {
            # Keys land where the Java client would put them.
            "partitioner": "murmur2_random",
            # What goes wrong is raised or reported, not printed by librdkafka's threads.
            "log_level": 0,
            **(self.others or {}),
            "bootstrap.servers": self.bootstrap,
            "acks": self.acks,
            "enable.idempotence": self.is_idempotent,
            "compression.type": self.compression_type,
            "delivery.timeout.ms": self.delivery_timeout_ms,
            "queue.buffering.max.messages": self.queue_buffering_max_messages,
            "batch.num.messages": self.batch_num_messages,
            # Whoever waits for each record gains nothing from waiting for a second one.
            "linger.ms": 0 if self.is_sync else self.queue_buffering_max_ms,
        }

    def _require_no_second_opinion(self) -> None:
        own = {field.name.replace("_", "."): field.name for field in fields(self)}
        arguments = own | dict(_ARGUMENTS)
        for name in self.others or {}:
            if name in arguments:
                raise ConfigError(
                    f"{name} is given by the argument {arguments[name]}, not in settings"
                )

    def _require_reliable(self) -> None:
        if self.acks not in _ALL:
            raise ConfigError(f"profile is reliable, which needs acks=all, but acks is {self.acks}")
        if not self.is_idempotent:
            raise ConfigError("profile is reliable, but enable.idempotence is false")
        if self.queue_enqueue_timeout_ms != WAIT_FOR_EVER:
            raise ConfigError(
                "profile is reliable, which drops nothing, but queue.enqueue.timeout.ms is "
                f"{self.queue_enqueue_timeout_ms} and not -1"
            )


def _require_one_of(name: str, value: object, allowed: object) -> None:
    assert isinstance(allowed, tuple | list)
    if value not in allowed:
        words = ", ".join("none" if each is None else str(each) for each in allowed)
        raise ConfigError(f"{name} is '{value}' but must be one of {words}")


def _require_within(name: str, value: object) -> None:
    least, most = _BOUNDS[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} is '{value}' but must be a number from {least} to {most}")
