"""What a log holds, judged; every way of being wrong is found."""

from collections.abc import Sequence

import pytest

from tidelog.lab.record_names import (
    UNKNOWN_RECORD,
    described,
    identify_record,
    record_id,
    record_value,
)
from tidelog.lab.verdict import NOT_ACKNOWLEDGED, PartitionVerdict, judge

A0, A1, A2 = (record_id(0, number) for number in range(3))
B0, B1 = (record_id(1, number) for number in range(2))
STORED = [A0, B0, A1, B1]
ACKNOWLEDGED = {0: [0, 2, NOT_ACKNOWLEDGED], 1: [1, 3]}


def verdict_on(
    stored: Sequence[int], consumed: Sequence[Sequence[int]] = (), difference: str | None = None
) -> PartitionVerdict:
    return judge(
        7, stored=stored, acknowledged=ACKNOWLEDGED, consumed=consumed, difference=difference
    )


def wrong(verdict: PartitionVerdict) -> dict[str, int]:
    names = ("lost", "duplicated", "reordered", "unexpected", "undone")
    return {name: getattr(verdict, name) for name in names if getattr(verdict, name)}


def test_log_that_holds_what_was_acknowledged_is_good() -> None:
    verdict = verdict_on(STORED, [STORED, STORED[:2], []])
    assert verdict.is_good
    assert (verdict.partition, verdict.stored, verdict.acknowledged) == (7, 4, 4)
    assert verdict.examples == ()


def test_record_that_was_not_acknowledged_may_be_there() -> None:
    assert verdict_on([*STORED, A2]).is_good


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (STORED[:3], {"lost": 1}),
        ([], {"lost": 4}),
        ([B0, A0, A1, B1], {"lost": 2}),
        ([*STORED, A2, A2], {"duplicated": 1}),
        ([*STORED, A0], {"duplicated": 1, "reordered": 1}),
        ([A1, B0, A0, B1], {"lost": 2, "reordered": 1}),
        ([*STORED, UNKNOWN_RECORD], {"unexpected": 1}),
        ([*STORED, record_id(1, 2)], {"unexpected": 1}),
        ([*STORED, record_id(5, 0)], {"unexpected": 1}),
    ],
)
def test_what_is_wrong_with_a_log_is_counted(stored: list[int], expected: dict[str, int]) -> None:
    verdict = verdict_on(stored)
    assert not verdict.is_good
    assert wrong(verdict) == expected
    assert verdict.examples


@pytest.mark.parametrize("consumed", [[A0, A1], [*STORED, A2], [UNKNOWN_RECORD]])
def test_what_a_consumer_has_read_must_stay(consumed: list[int]) -> None:
    verdict = verdict_on(STORED, [consumed])
    assert wrong(verdict) == {"undone": 1}


def test_replicas_that_differ_are_not_good() -> None:
    assert not verdict_on(STORED, difference="broker 1: its log has ended").is_good


def test_example_says_what_is_where() -> None:
    (example,) = verdict_on(STORED[:3]).examples
    assert example == "record 1 of producer 1 was acknowledged at offset 3, which is behind the end"


def test_record_says_who_it_is() -> None:
    value = record_value(3, 5, 1_207)
    assert identify_record(value, 5) == record_id(3, 1_207)
    assert described(identify_record(value, 5)) == "record 1207 of producer 3"


@pytest.mark.parametrize(
    "value",
    [None, b"", b"1 2", b"x y z", b"1 5 7", record_value(3, 4, 0), record_value(3, 5, 0)[1:]],
)
def test_record_that_does_not_belong_there_is_of_nobody(value: bytes | None) -> None:
    assert identify_record(value, 5) == UNKNOWN_RECORD
    assert described(UNKNOWN_RECORD) == "a record of nobody"
