"""A record that is to be sent."""

from collections.abc import Sequence
from typing import NamedTuple

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


class OutgoingRecord(NamedTuple):
    """A record to be sent. Without a timestamp it gets the time of sending."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
