"""Which fault kept acknowledgements from coming, and for how long."""

import pytest

from tidelog.lab.fault_kinds import Deed, Others, Role
from tidelog.lab.fault_schedule import Fault
from tidelog.lab.faults import Outcome, attribute_gaps
from tidelog.lab.injector import BegunFault
from tidelog.lab.verdict import judge
from tidelog.lab.workload import Gap


def begun(
    deed: Deed, victim: Role, *names: str, at: float = 0.0, away_s: float = 0.8
) -> BegunFault:
    fault = Fault(
        number=1,
        deed=deed,
        victim=victim,
        partition=3,
        others=Others.CLIENTS,
        delay_s=0.02,
        away_s=away_s,
        chosen=0,
    )
    return BegunFault(fault, names, at, lambda: None)


def test_end_of_a_fault_is_noted_when_it_is_undone() -> None:
    undone: list[float | None] = []
    fault = begun(Deed.KILL, Role.LEADER, "broker 2")
    fault.undo = lambda: undone.append(fault.ended_at)
    fault.end()
    assert undone == [None]
    assert fault.ended_at is not None


@pytest.mark.parametrize(
    ("began_at", "ended_at", "index"),
    [
        (9.9, 10.5, 0),  # The last acknowledgement came just before the fault.
        (10.2, 10.5, 0),
        (9.9, 20.5, 0),  # Still silent when the next one happened.
        (10.2, 20.5, 0),  # The last acknowledgement came a little after the fault.
        (15.0, 20.5, 1),
        (19.9, 20.1, 1),
        (25.0, 26.0, 1),
    ],
)
def test_gap_belongs_to_the_fault_that_began_it(
    began_at: float, ended_at: float, index: int
) -> None:
    expected = [0.0, 0.0]
    expected[index] = ended_at - began_at
    assert attribute_gaps([Gap(0, began_at, ended_at)], [10.0, 20.0]) == expected


def test_longest_gap_counts_and_one_before_all_faults_does_not() -> None:
    gaps = [Gap(0, 1.0, 2.0), Gap(0, 10.0, 10.5), Gap(1, 10.0, 12.0), Gap(2, 10.0, 11.0)]
    assert attribute_gaps(gaps, [10.0]) == [2.0]
    assert attribute_gaps(gaps, []) == []


def test_gaps_are_told_by_kind_of_fault() -> None:
    outcome = Outcome(gaps=[Gap(0, 10.0, 10.5), Gap(0, 30.0, 33.0)])
    for number, deed in enumerate([Deed.KILL, Deed.STOP, Deed.KILL], start=1):
        outcome.injected.append(begun(deed, Role.LEADER, "broker 2", at=10.0 * number))
    assert outcome.gaps_by_kind() == {"kill leader": [0.5, 3.0], "stop leader": [0.0]}
    assert outcome.longest_gap_s == 3.0


def test_a_partition_is_unavailable_for_all_of_its_gaps() -> None:
    verdicts = [
        judge(each, stored=[], acknowledged={}, consumed=[], difference=None) for each in range(2)
    ]
    outcome = Outcome(
        gaps=[Gap(0, 1.0, 2.0), Gap(0, 3.0, 4.0), Gap(1, 1.0, 3.0)], verdicts=verdicts
    )
    assert outcome.unavailable_s == 2.0


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            begun(Deed.KILL, Role.LEADER, "broker 2", "broker 1"),
            "kill leader of partition 3: broker 2, broker 1, for 0.8 s",
        ),
        (
            begun(Deed.EXPIRE, Role.CONTROLLER, "broker 2", away_s=0),
            "expire controller: broker 2",
        ),
        (
            begun(Deed.SLOW, Role.ALL, "broker 1"),
            "slow all from clients: broker 1, by 20 ms, for 0.8 s",
        ),
        (
            begun(Deed.CUT, Role.LEADER, "broker 2", away_s=5.0),
            "cut leader of partition 3 from clients: broker 2, for 5.0 s",
        ),
        (begun(Deed.KILL, Role.ALL, away_s=0), "kill all: nobody is left"),
    ],
)
def test_fault_is_one_line(fault: BegunFault, line: str) -> None:
    assert fault.as_line() == line
