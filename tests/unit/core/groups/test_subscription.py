"""Which topics a consumer says it subscribes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.groups.hosted import subscription
from tidelog.core.groups.subscription import all_subscribed_topics, subscribed_topics


@given(topics=st.lists(st.text(max_size=20), max_size=4))
def test_the_topics_of_a_subscription_are_read(topics: list[str]) -> None:
    encoded = [topic.encode() for topic in topics]
    head = b"\0\3" + len(topics).to_bytes(4, "big")
    metadata = head + b"".join(len(one).to_bytes(2, "big") + one for one in encoded)
    assert subscribed_topics(metadata + b"whatever else") == frozenset(topics)


@given(metadata=st.binary(max_size=40))
def test_any_bytes_are_topics_or_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None or isinstance(subscribed_topics(metadata), frozenset)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\1\0\5abc",
        b"\0\0\0\0\0\1\xff\xffabc",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\0\0\x7f\xff\xff\xff",
    ],
)
def test_what_is_no_subscription_says_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


def test_one_that_cannot_be_understood_leaves_all_of_them_unknown() -> None:
    known = subscription("a", "b")
    assert all_subscribed_topics([known, subscription("c")]) == frozenset("abc")
    assert all_subscribed_topics([known, b"?"]) is None
    assert all_subscribed_topics([]) == frozenset()
