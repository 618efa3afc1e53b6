"""Parked produces: settled once, whatever comes first."""

import asyncio
from collections.abc import Sequence

from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.ids import Offset
from tidelog.broker.waiters import OffsetWaiters, ParkedProduce


class Outcome:
    def __init__(self) -> None:
        self.answers: list[Sequence[str]] = []

    def parked(self, results: list[str | None]) -> ParkedProduce[str]:
        return ParkedProduce(
            results,
            missing=results.count(None),
            complete=self.answers.append,
            expired=lambda slot: f"expired {slot}",
        )


def test_a_produce_is_complete_when_its_last_partition_is_settled() -> None:
    outcome = Outcome()
    parked = outcome.parked(["a", None, None])
    parked.settle(2, "c")
    assert outcome.answers == []
    parked.settle(1, "b")
    assert outcome.answers == [["a", "b", "c"]]


def test_a_partition_is_settled_once() -> None:
    outcome = Outcome()
    parked = outcome.parked([None, None])
    parked.settle(0, "first")
    parked.settle(0, "second")
    assert outcome.answers == []
    parked.settle(1, "b")
    parked.settle(1, "late")
    assert outcome.answers == [["first", "b"]]


@in_virtual_time
async def test_what_is_not_settled_in_time_is_expired() -> None:
    outcome = Outcome()
    parked = outcome.parked([None, None])
    parked.expire_after(asyncio.get_running_loop(), 1.0)
    parked.settle(1, "b")
    await asyncio.sleep(1.1)
    assert outcome.answers == [["expired 0", "b"]]
    parked.settle(0, "late")
    assert len(outcome.answers) == 1


@in_virtual_time
async def test_an_abandoned_produce_says_nothing_more() -> None:
    outcome = Outcome()
    parked = outcome.parked([None])
    parked.expire_after(asyncio.get_running_loop(), 1.0)
    parked.abandon()
    parked.settle(0, "late")
    await asyncio.sleep(1.1)
    assert outcome.answers == []


def test_waiters_are_woken_in_the_order_of_their_offsets() -> None:
    waiters = OffsetWaiters()
    woken: list[int] = []
    for offset in (7, 3, 5, 3):
        waiters.add(Offset(offset), lambda offset=offset: woken.append(offset))  # type: ignore[misc]
    waiters.wake(Offset(2))
    assert woken == []
    waiters.wake(Offset(5))
    assert woken == [3, 3, 5]
    assert len(waiters) == 1
    waiters.wake_all()
    assert woken == [3, 3, 5, 7]


def test_a_waiter_added_by_another_is_woken_if_its_offset_is_reached() -> None:
    waiters = OffsetWaiters()
    woken: list[str] = []

    def first() -> None:
        woken.append("first")
        waiters.add(Offset(4), lambda: woken.append("second"))

    waiters.add(Offset(3), first)
    waiters.wake(Offset(4))
    assert woken == ["first", "second"]


def test_a_waiter_added_while_all_are_woken_waits_on() -> None:
    waiters = OffsetWaiters()
    waiters.add(Offset(3), lambda: waiters.add(Offset(4), lambda: None))
    waiters.wake_all()
    assert len(waiters) == 1
