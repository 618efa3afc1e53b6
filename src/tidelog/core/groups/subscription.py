"""What consumers say of themselves when they join a classic group.

To the coordinator a member's metadata is opaque, but for one question: which topics do the members
of a group of consumers subscribe to? Offsets of those neither expire nor may be deleted.

    version   int16
    topics    int32 count, then for each an int16 length and UTF-8
    ...       whatever else the version has
"""

import struct
from collections.abc import Iterable

_HEADER = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics that one member subscribes to; None if these bytes do not say."""
    try:
        version, topic_count = _HEADER.unpack_from(metadata)
        if version < 0 or topic_count < 0:
            return None
        return frozenset(_topics(metadata, topic_count))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def all_subscribed_topics(members: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None if one of them cannot be understood."""
    together: set[str] = set()
    for metadata in members:
        topics = subscribed_topics(metadata)
        if topics is None:
            return None
        together |= topics
    return frozenset(together)


def _topics(metadata: bytes, topic_count: int) -> Iterable[str]:
    position = _HEADER.size
    for _ in range(topic_count):
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(metadata):
            raise ValueError("a topic beyond the end")
        yield metadata[position : position + length].decode()
        position += length
