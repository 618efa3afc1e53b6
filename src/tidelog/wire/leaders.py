"""Who leads now, in answers to Produce and Fetch that reached the wrong broker (KIP-951).

With these a client turns to the new leader at once, without asking for metadata first. They are
tagged fields, so only flexible versions carry them.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.wire.primitives import compact_nullable_string, compact_string, uvarint

_INT32 = struct.Struct(">i")
_LEADER = struct.Struct(">iib")


class LeaderIdAndEpoch(NamedTuple):
    """Who leads, for a client that asked the wrong broker (KIP-951)."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Where a leader of a LeaderIdAndEpoch is to be found."""

    node_id: int
    host: str
    port: int
    rack: str | None


def encode_current_leader(leader: LeaderIdAndEpoch) -> bytes:
    """The content of the tagged field."""
    return _LEADER.pack(leader.leader_id, leader.leader_epoch, 0)


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The content of the tagged field."""
    parts = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (
            _INT32.pack(node_id),
            compact_string(host),
            _INT32.pack(port),
            compact_nullable_string(rack),
            b"\x00",
        )
    return b"".join(parts)
