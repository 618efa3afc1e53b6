"""A broker is away from its kill until all are in sync again, beside whatever else is done (B3)."""

from threading import Event

import pytest

from tidelog.lab.broker_outage import broker_outage
from tidelog.lab.errors import LabError

WITHIN_S = 30.0


class Brokers:
    """Whose return takes until somebody lets it happen."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.may_serve = Event()
        self.may_catch_up = Event()
        self.serves = Event()

    def kill(self, broker_id: int) -> None:
        self.done.append(f"kill {broker_id}")

    def restart(self, broker_id: int) -> None:
        self.done.append(f"restart {broker_id}")
        assert self.may_serve.wait(WITHIN_S)
        self.serves.set()

    def wait_in_sync(self) -> None:
        assert self.may_catch_up.wait(WITHIN_S)
        self.done.append("in sync")


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_who_is_killed_is_away_until_all_are_in_sync(brokers: Brokers) -> None:
    with broker_outage(brokers, brokers.wait_in_sync) as outage:
        outage.begin(2)
        assert brokers.done == ["kill 2"]
        outage.come_back()
        outage.come_back()
        assert outage.broker_id == 2
        brokers.may_serve.set()
        assert brokers.serves.wait(WITHIN_S)
        assert outage.broker_id == 2
        brokers.may_catch_up.set()
        outage.end()
        assert outage.broker_id is None
        assert brokers.done == ["kill 2", "restart 2", "in sync"]


def test_who_is_still_down_at_the_end_is_started(brokers: Brokers) -> None:
    brokers.may_serve.set()
    brokers.may_catch_up.set()
    with broker_outage(brokers, brokers.wait_in_sync) as outage:
        outage.end()
        for broker_id in (1, 3):
            outage.begin(broker_id)
            outage.end()
    assert brokers.done == ["kill 1", "restart 1", "in sync", "kill 3", "restart 3", "in sync"]


def test_who_does_not_come_back_is_a_failure(brokers: Brokers) -> None:
    def never_in_sync() -> None:
        raise LabError("not in sync")

    brokers.may_serve.set()
    with broker_outage(brokers, never_in_sync) as outage:
        outage.begin(1)
        with pytest.raises(LabError, match="not in sync"):
            outage.end()


def test_two_are_never_away_at_once(brokers: Brokers) -> None:
    with broker_outage(brokers, brokers.wait_in_sync) as outage:
        outage.begin(1)
        with pytest.raises(AssertionError, match="one at a time"):
            outage.begin(2)
