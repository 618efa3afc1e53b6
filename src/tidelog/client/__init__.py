"""What applications import: `Producer`, and facades for administrators, over confluent-kafka.

Names are loaded when they are asked for: whoever needs an address list only does not wait for
librdkafka.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.application_producer import Producer as Producer

__all__ = ["Producer"]


def __getattr__(name: str) -> object:
    if name == "Producer":
        from tidelog.client.application_producer import Producer  # noqa: PLC0415

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
