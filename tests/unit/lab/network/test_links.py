"""What is cut, what is slow, and what healing leaves."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.lab.network.links import DELAY_MAX_MS, WHOLE, Link, Links, pairs_between
from tidelog.lab.network.parties import CLIENTS, ZOOKEEPER, Party, broker_party

ONE, TWO, THREE = (broker_party(number) for number in (1, 2, 3))
PARTIES = (ONE, TWO, THREE, CLIENTS, ZOOKEEPER)
CUT = Link(is_cut=True, delay_ms=0)


def test_link_is_whole_until_something_is_done_to_it() -> None:
    assert Links().link(ONE, TWO) == WHOLE


def test_cut_link_is_cut_in_both_directions() -> None:
    links = Links()
    links.cut(ONE, TWO)
    assert links.link(ONE, TWO) == links.link(TWO, ONE) == CUT
    assert links.link(ONE, THREE) == links.link(TWO, CLIENTS) == WHOLE


def test_slow_link_is_as_slow_as_it_was_made_last() -> None:
    links = Links()
    links.slow(ONE, TWO, delay_ms=200)
    links.slow(TWO, ONE, delay_ms=50)
    assert links.link(ONE, TWO) == Link(is_cut=False, delay_ms=50)
    links.slow(TWO, ONE, delay_ms=0)
    assert not links.changed


def test_cut_link_stays_slow() -> None:
    links = Links()
    links.slow(ONE, TWO, delay_ms=200)
    links.cut(ONE, TWO)
    assert links.link(ONE, TWO) == Link(is_cut=True, delay_ms=200)
    links.slow(ONE, TWO, delay_ms=0)
    assert links.link(ONE, TWO) == CUT


def test_healed_link_is_whole() -> None:
    links = Links()
    links.cut(ONE, TWO)
    links.slow(ONE, TWO, delay_ms=200)
    links.cut(ONE, THREE)
    links.heal(TWO, ONE)
    assert links.link(ONE, TWO) == WHOLE
    assert links.link(ONE, THREE) == CUT
    links.heal_all()
    assert not links.changed


def test_groups_are_cut_from_each_other_and_not_within() -> None:
    links = Links()
    links.cut_between([ONE, CLIENTS], [TWO, THREE])
    assert {frozenset(pair) for pair in pairs_between([ONE, CLIENTS], [TWO, THREE])} == set(
        links.changed
    )
    assert links.link(ONE, CLIENTS) == links.link(TWO, THREE) == WHOLE
    links.heal_between([ONE], [TWO, THREE])
    assert set(links.changed) == {frozenset((CLIENTS, TWO)), frozenset((CLIENTS, THREE))}
    links.slow_between([ONE], [TWO, THREE], delay_ms=7)
    assert links.link(THREE, ONE) == Link(is_cut=False, delay_ms=7)


@pytest.mark.parametrize(
    "change",
    [
        lambda links: links.cut(ONE, ONE),
        lambda links: links.cut_between([ONE, TWO], [TWO]),
        lambda links: links.slow(ONE, TWO, delay_ms=DELAY_MAX_MS + 1),
        lambda links: links.slow(ONE, TWO, delay_ms=-1),
    ],
)
def test_link_that_cannot_be_is_a_bug(change: Callable[[Links], None]) -> None:
    with pytest.raises(AssertionError):
        change(Links())


def test_party_has_a_whole_link_to_itself() -> None:
    links = Links()
    links.cut_between([ONE], [TWO, THREE, CLIENTS])
    assert links.link(ONE, ONE) == WHOLE


pairs = st.lists(st.sampled_from(PARTIES), min_size=2, max_size=2, unique=True)
changes = st.tuples(st.sampled_from(["cut", "slow", "heal"]), pairs, st.integers(0, DELAY_MAX_MS))


@given(st.lists(changes, max_size=20))
def test_link_is_what_was_done_to_it_since_it_was_healed(
    done: list[tuple[str, list[Party], int]],
) -> None:
    links = Links()
    for what, (a, b), delay_ms in done:
        match what:
            case "cut":
                links.cut(a, b)
            case "slow":
                links.slow(a, b, delay_ms=delay_ms)
            case _:
                links.heal(a, b)
    for a, b in ((a, b) for a in PARTIES for b in PARTIES if a != b):
        to_it = [(what, ms) for what, ends, ms in done if set(ends) == {a, b}]
        healed_at = max((at for at, (what, _) in enumerate(to_it) if what == "heal"), default=-1)
        since = to_it[healed_at + 1 :]
        expected = Link(
            is_cut=any(what == "cut" for what, _ in since),
            delay_ms=next((ms for what, ms in reversed(since) if what == "slow"), 0),
        )
        assert links.link(a, b) == expected
        assert (frozenset((a, b)) in links.changed) == (expected != WHOLE)
