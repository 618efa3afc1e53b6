"""The verdict on a transformed topic, and which faults a seed means (D3, B3)."""

from collections import Counter

import pytest

from tidelog.lab.exactly_once_schedule import Deed, Target, plan
from tidelog.lab.exactly_once_verdict import TransformVerdict, judge_transform
from tidelog.lab.points import Point

EXPECTED = [b"a", b"b", b"c", b"d"]


def judged(*found: bytes) -> TransformVerdict:
    return judge_transform(3, expected=EXPECTED, found=found)


def counts(verdict: TransformVerdict) -> tuple[int, int, int, int]:
    return verdict.lost, verdict.repeated, verdict.reordered, verdict.unexpected


def test_the_same_records_in_the_same_order_are_good() -> None:
    assert judged(*EXPECTED).is_good


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([b"a", b"b", b"d"], (1, 0, 0, 0)),
        ([b"a", b"b", b"b", b"c", b"d", b"b"], (0, 2, 0, 0)),
        ([b"b", b"a", b"c", b"d"], (0, 0, 1, 0)),
        ([b"a", b"b", b"c", b"d", b"x"], (0, 0, 0, 1)),
        ([], (4, 0, 0, 0)),
    ],
)
def test_every_kind_of_damage_is_counted(
    found: list[bytes], expected: tuple[int, int, int, int]
) -> None:
    verdict = judged(*found)
    assert counts(verdict) == expected
    assert not verdict.is_good
    assert verdict.examples


def test_a_seed_means_the_same_faults_every_time() -> None:
    assert plan(7, fault_count=40, record_count=1_000) == plan(
        7, fault_count=40, record_count=1_000
    )
    assert plan(7, fault_count=40, record_count=1_000) != plan(
        8, fault_count=40, record_count=1_000
    )


def test_faults_are_spread_over_the_records_and_hit_everybody() -> None:
    faults = plan(1, fault_count=99, record_count=1_000)
    assert [fault.at_record for fault in faults] == [10 * n for n in range(1, 100)]
    targets = Counter(fault.target for fault in faults)
    assert set(targets) == set(Target)
    assert targets[Target.APPLICATION] > 20
    assert {fault.deed for fault in faults if fault.target is Target.APPLICATION} == {
        Deed.KILL,
        Deed.PAUSE,
    }
    kills = [each for each in faults if each.kind.startswith("kill -9 application")]
    assert {each.point for each in kills} == {None, *Point}
    assert {each.point for each in faults if each not in kills} == {None}
