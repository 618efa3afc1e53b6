"""KIP-951: who leads now, as the content of tagged fields."""

from tidelog.wire.leaders import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    encode_current_leader,
    encode_node_endpoints,
)


def test_leader_is_its_id_and_epoch() -> None:
    assert encode_current_leader(LeaderIdAndEpoch(1, 5)) == b"\x00\x00\x00\x01\x00\x00\x00\x05\x00"


def test_endpoints_are_a_compact_array() -> None:
    assert encode_node_endpoints([]) == b"\x01"
    assert (
        encode_node_endpoints([NodeEndpoint(2, "h", 9092, None)])
        == b"\x02\x00\x00\x00\x02\x02h\x00\x00\x23\x84\x00\x00"
    )
