"""When requests may be handled: while the session may be relied on, by the clock (C6)."""

from typing import Any

from tests.unit.broker.world import ManualClock
from tidelog.broker.session_gate import SURE_FOR_MS, SessionGate


class Timers:
    """A loop that runs what is due when it is told to."""

    def __init__(self) -> None:
        self.due: list[Any] = []

    def call_later(self, _delay_s: float, callback: Any) -> None:
        self.due.append(callback)

    def run(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


class Session:
    """One that says until when it may be relied on."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.lease_end_ms = 0
        self.asked_count = 0

    def is_reliable(self, for_ms: int) -> bool:
        self.asked_count += 1
        return self.clock.monotonic_ms() + for_ms < self.lease_end_ms


def new_gate() -> tuple[SessionGate, Session, Timers, ManualClock]:
    clock, timers = ManualClock(), Timers()
    loop: Any = timers
    gate, session = SessionGate(clock, loop), Session(clock)
    gate.is_reliable = session.is_reliable
    return gate, session, timers, clock


def test_gate_of_a_broker_without_claims_is_open() -> None:
    loop: Any = Timers()
    assert SessionGate(ManualClock(), loop).is_open()


def test_gate_is_open_while_the_lease_lasts() -> None:
    gate, session, _, clock = new_gate()
    session.lease_end_ms = clock.monotonic_ms() + 1_000
    assert gate.is_open()
    clock.advance(1_000)
    assert not gate.is_open()


def test_nobody_acts_upon_a_lease_that_is_about_to_end() -> None:
    """What was found out holds for a while, so it is found out for that while."""
    gate, session, _, clock = new_gate()
    session.lease_end_ms = clock.monotonic_ms() + SURE_FOR_MS
    assert not gate.is_open()


def test_session_is_asked_now_and_then() -> None:
    gate, session, _, clock = new_gate()
    session.lease_end_ms = clock.monotonic_ms() + 1_000_000
    for _ in range(10 * SURE_FOR_MS):
        assert gate.is_open()
        clock.advance(1)
    assert session.asked_count == 10


def test_who_waits_goes_on_when_the_session_turns_out_to_live() -> None:
    gate, session, timers, clock = new_gate()
    went_on: list[str] = []
    gate.when_open(lambda: went_on.append("one"))
    gate.when_open(lambda: went_on.append("other"))
    timers.run()
    assert went_on == []
    session.lease_end_ms = clock.monotonic_ms() + 1_000
    timers.run()
    assert went_on == ["one", "other"]
    assert timers.due == []
