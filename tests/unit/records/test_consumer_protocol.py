"""What consumers of the classic protocol say to each other, beside kio's idea of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.groups.consumer.classic_consumers import encode_subscription
from tidelog.base.ids import TopicPartition
from tidelog.records.consumer_protocol import (
    EmbeddedAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

_names = st.text("abc-é", min_size=1, max_size=5)
_partitions = st.lists(st.builds(TopicPartition, _names, st.integers(0, 99)), unique=True)


@given(partitions=_partitions, version=st.integers(0, 5))
def test_an_assignment_comes_back_as_it_was(partitions: list[TopicPartition], version: int) -> None:
    decoded = decode_assignment(encode_assignment(partitions, version))
    assert decoded == EmbeddedAssignment(tuple(sorted(partitions)))


@pytest.mark.parametrize("version", range(5))
def test_subscriptions_of_every_version_are_understood(version: int) -> None:
    owned = [TopicPartition("orders", 3)]
    found = decode_subscription(encode_subscription(["orders", "stock"], owned, version=version))
    assert found is not None
    assert found.version == version
    assert found.topics == {"orders", "stock"}
    assert found.owned == (tuple(owned) if version >= 1 else ())
    assert found.rack_id == ("rack" if version >= 3 else None)


@given(st.binary(max_size=30))
def test_any_bytes_are_understood_or_not(data: bytes) -> None:
    decode_subscription(data)
    decode_assignment(data)


@pytest.mark.parametrize("cut", range(1, 20))
def test_what_is_cut_off_is_not_understood(cut: int) -> None:
    whole = encode_subscription(["orders"], [TopicPartition("orders", 3)], version=3)
    assert decode_subscription(whole[:-cut]) is None


def test_user_data_of_an_assignor_is_noticed() -> None:
    data = encode_assignment([], 0)[:-4] + b"\x00\x00\x00\x02hi"
    assert decode_assignment(data) == EmbeddedAssignment((), b"hi")
    assert decode_assignment(b"") == EmbeddedAssignment(())
    assert decode_assignment(b"\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff") is None
