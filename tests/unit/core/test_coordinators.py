"""Which partition of an internal topic looks after a key (P3, D3)."""

import pytest

from tidelog.core.coordinators import partition_of


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),  # The famous one: its absolute value is no int.
        ("ü", 252),
        ("\U0001f600", 1772899),  # Two code units, d83d and de00.
    ],
)
def test_key_falls_where_java_says(key: str, java_hash: int) -> None:
    assert partition_of(key, 50) == (java_hash & 0x7FFF_FFFF) % 50
