"""Clocks of simulated machines."""

from tidelog.sim.agenda import Agenda
from tidelog.sim.clock import EPOCH_MS, SimulatedClock


def test_a_clock_follows_virtual_time() -> None:
    agenda = Agenda()
    clock = SimulatedClock(agenda, offset_ms=0, drift=0.0)
    assert (clock.now_ms(), clock.monotonic_ms()) == (EPOCH_MS, 0)
    agenda.now_s = 1.5
    assert (clock.now_ms(), clock.monotonic_ms()) == (EPOCH_MS + 1_500, 1_500)


def test_a_wall_clock_is_set_and_the_monotonic_one_is_not() -> None:
    agenda = Agenda()
    clock = SimulatedClock(agenda, offset_ms=-7_000, drift=0.0)
    agenda.now_s = 1.0
    assert clock.now_ms() == EPOCH_MS - 6_000
    clock.set_offset_ms(500)
    assert clock.now_ms() == EPOCH_MS + 1_500
    assert clock.monotonic_ms() == 1_000


def test_a_clock_that_drifts_never_goes_back() -> None:
    agenda = Agenda()
    clock = SimulatedClock(agenda, offset_ms=0, drift=0.1)
    agenda.now_s = 100.0
    assert clock.monotonic_ms() == 110_000
    clock.set_drift(-0.1)
    assert clock.monotonic_ms() == 110_000
    agenda.now_s = 200.0
    assert clock.monotonic_ms() == 200_000


def test_clocks_of_processes_that_begin_later_agree() -> None:
    agenda = Agenda()
    agenda.now_s = 30.0
    assert SimulatedClock(agenda, offset_ms=0, drift=0.5).monotonic_ms() == 30_000
