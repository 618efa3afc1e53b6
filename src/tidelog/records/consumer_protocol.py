"""What consumers of the classic protocol say to each other through the coordinator.

To a classic group these bytes are opaque. A coordinator that serves such a member in a group of the
consumer protocol has to understand what it subscribes to and owns, and to speak like its leader.

    subscription   version │ topics │ user data │ v1: owned partitions │ v2: generation │ v3: rack
    assignment     version │ partitions │ user data

Strings and arrays have their length before them, -1 for none. Versions beyond the last known begin
like it.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.base.ids import TopicPartition

LAST_VERSION: Final = 3

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class EmbeddedSubscription(NamedTuple):
    """What one member wants, and what it has."""

    version: int
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    rack_id: str | None = None


class EmbeddedAssignment(NamedTuple):
    """What one member is to read."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes = b""


def decode_subscription(data: bytes) -> EmbeddedSubscription | None:
    """None if these bytes are not a consumer's."""
    reader = _Reader(data)
    try:
        version = reader.int16()
        topics = frozenset(reader.string() for _ in range(reader.count()))
        reader.optional_bytes()
        owned = reader.partitions() if version >= 1 else ()
        if version >= 2:
            reader.int32()
        rack_id = reader.optional_string() if version >= 3 else None
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return EmbeddedSubscription(version, topics, owned, rack_id) if version >= 0 else None


def decode_assignment(data: bytes) -> EmbeddedAssignment | None:
    """None if these bytes are not a consumer's. No bytes at all are no partitions."""
    if not data:
        return EmbeddedAssignment(())
    reader = _Reader(data)
    try:
        version = reader.int16()
        assignment = EmbeddedAssignment(reader.partitions(), reader.optional_bytes() or b"")
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return assignment if version >= 0 else None


def encode_assignment(partitions: Iterable[TopicPartition], version: int) -> bytes:
    """As a leader would assign `partitions` to a member that speaks `version`."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    output = bytearray(_INT16.pack(min(version, LAST_VERSION)))
    output += _partitions(by_topic)
    output += _INT32.pack(-1)
    return bytes(output)


def _partitions(by_topic: Mapping[str, list[int]]) -> bytes:
    output = bytearray(_INT32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        name = topic.encode()
        output += _INT16.pack(len(name)) + name + _INT32.pack(len(numbers))
        output += struct.pack(f">{len(numbers)}i", *numbers)
    return bytes(output)


class _Reader:
    """Walks along the bytes; ValueError or struct.error where they end too early."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def count(self) -> int:
        """Of elements, each of which takes two bytes or more."""
        count = self.int32()
        if not 0 <= count <= (len(self._data) - self._at) // 2:
            raise ValueError("more elements than bytes")
        return count

    def string(self) -> str:
        text = self.optional_string()
        if text is None:
            raise ValueError("no text")
        return text

    def optional_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._bytes(length).decode()

    def optional_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._bytes(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _number(self, layout: struct.Struct) -> int:
        (number,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(number)

    def _bytes(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise ValueError("bytes beyond the end")
        self._at += length
        return self._data[self._at - length : self._at]
