"""Bounds on held bytes: who waits goes on, in order, once there is room."""

from tidelog.broker.memory import MemoryBound


def test_whoever_waits_goes_on_in_the_order_of_asking() -> None:
    memory = MemoryBound(10)
    memory.hold(10)
    order: list[str] = []
    for name in "abc":
        memory.when_available(lambda name=name: order.append(name))  # type: ignore[misc]
    assert order == []
    memory.release(1)
    assert order == ["a", "b", "c"]


def test_those_behind_wait_on_if_the_first_uses_the_room_up() -> None:
    memory = MemoryBound(10)
    memory.hold(10)
    order: list[str] = []

    def first() -> None:
        order.append("first")
        memory.hold(5)

    memory.when_available(first)
    memory.when_available(lambda: order.append("second"))
    memory.release(1)
    assert order == ["first"]
    memory.release(5)
    assert order == ["first", "second"]


def test_giving_back_from_within_a_callback_loses_nobody() -> None:
    memory = MemoryBound(10)
    memory.hold(12)
    order: list[str] = []

    def first() -> None:
        order.append("first")
        memory.hold(1)
        memory.release(3)

    memory.when_available(first)
    memory.when_available(lambda: order.append("second"))
    memory.release(3)
    assert order == ["first", "second"]
    assert memory.held_bytes == 7


def test_the_bound_may_be_passed_by_what_is_held_in_any_case() -> None:
    memory = MemoryBound(10)
    assert memory.has_room_for(10)
    memory.hold(25)
    assert memory.is_exhausted
    assert memory.available_bytes == 0
    memory.release(16)
    assert memory.available_bytes == 1
    assert not memory.has_room_for(2)
