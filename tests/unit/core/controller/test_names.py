"""Topic names: Kafka's alphabet, length and collisions (P1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.core.controller.names import folded, require_distinct, require_legal


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "a" * 249, "__consumer_offsets"])
def test_a_legal_name_is_taken(name: str) -> None:
    require_legal(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\n", "a\0", "a:b"])
def test_an_illegal_name_is_an_invalid_topic(name: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        require_legal(name)
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal.value.message


@given(st.text(max_size=300))
def test_whatever_is_legal_can_be_a_folder(name: str) -> None:
    try:
        require_legal(name)
    except RequestRefused:
        return
    assert name not in ("", ".", "..")
    assert "/" not in name
    assert "\0" not in name
    assert len(name.encode()) <= 249


@pytest.mark.parametrize(
    ("name", "existing"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c"), (".", "_")]
)
def test_names_that_differ_in_dot_and_underscore_only_collide(name: str, existing: str) -> None:
    with pytest.raises(RequestRefused, match="cannot be told") as refusal:
        require_distinct(name, folded([existing]))
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_other_names_do_not_collide() -> None:
    existing = folded(["a.b", "ab", "a-b"])
    for name in ("a.b", "a.b.c", "a-b", "ab", "a.bb"):
        require_distinct(name, existing)
