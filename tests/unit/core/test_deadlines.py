"""Timers by name, against a dictionary that is looked through."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.deadlines import Deadlines

_NAMES = st.sampled_from("abcd")
_STEPS = st.one_of(
    st.tuples(st.just("set"), _NAMES, st.integers(0, 20)),
    st.tuples(st.just("cancel"), _NAMES, st.just(0)),
    st.tuples(st.just("due"), st.just(""), st.integers(0, 20)),
)


@given(st.lists(_STEPS, max_size=60))
def test_deadlines_are_those_set_last(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for action, name, time_ms in steps:
        if action == "set":
            deadlines.set(name, time_ms)
            model[name] = time_ms
        elif action == "cancel":
            deadlines.cancel(name)
            model.pop(name, None)
        else:
            found = deadlines.due(time_ms)
            times = [model.pop(name) for name in found]
            assert times == sorted(times)
            assert all(at <= time_ms for at in times)
            assert all(at > time_ms for at in model.values())
        assert deadlines.next_ms == min(model.values(), default=None)
        assert len(deadlines) == len(model)


def test_setting_again_and_again_keeps_the_heap_small() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for time_ms in range(10_000):
        deadlines.set(time_ms % 10, time_ms)
    assert len(deadlines._heap) <= 2 * 10 + 16


def test_names_that_are_due_are_taken_one_by_one() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("second", 20)
    deadlines.set("first", 10)
    deadlines.set("third", 30)
    assert deadlines.first_due(9) is None
    assert deadlines.first_due(25) == "first"
    deadlines.cancel("second")
    assert deadlines.first_due(25) is None
    assert deadlines.next_ms == 30
