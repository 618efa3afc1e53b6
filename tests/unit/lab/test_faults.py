"""Which fault kept acknowledgements from coming, and for how long."""

import pytest

from tidelog.lab.fault_schedule import Deed, Fault, Victim
from tidelog.lab.faults import InjectedFault, Outcome, attribute_gaps
from tidelog.lab.workload import Gap


def fault(number: int, deed: Deed, victim: Victim) -> Fault:
    return Fault(
        number=number,
        deed=deed,
        victim=victim,
        partition=3,
        broker_count=1,
        load_s=0.1,
        away_s=0.0 if deed is Deed.RESTART else 0.8,
        waits_for_sync=True,
    )


@pytest.mark.parametrize(
    ("began_at", "ended_at", "index"),
    [
        (9.9, 10.5, 0),  # The last acknowledgement came just before the fault.
        (10.2, 10.5, 0),
        (9.9, 20.5, 0),  # Still silent when the next one happened.
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
    for number, deed in enumerate([Deed.KILL, Deed.RESTART, Deed.KILL], start=1):
        at = 10.0 * number
        one = InjectedFault(fault(number, deed, Victim.LEADER), ("broker 2",), at, at - 5)
        outcome.injected.append(one)
    assert outcome.gaps_by_kind() == {"kill -9 leader": [0.5, 3.0], "restart leader": [0.0]}
    assert outcome.longest_gap_s == 3.0


def test_fault_is_one_line() -> None:
    killed = InjectedFault(fault(1, Deed.KILL, Victim.LEADER), ("broker 2", "broker 1"), 0, 0)
    assert killed.as_line() == "kill -9 leader of 3: broker 2, broker 1, away for 0.8 s"
    restarted = InjectedFault(fault(1, Deed.RESTART, Victim.CONTROLLER), ("broker 2",), 0, 0)
    assert restarted.as_line() == "restart controller: broker 2"
