"""A difference is one only where the rounds of two sides do not overlap."""

import pytest

from tidelog.bench.figures import (
    Difference,
    Figures,
    number_text,
    pooled,
    ratio_text,
    ratios,
    spread_text,
)


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        ((11, 12, 13), (8, 9, 10), Difference.LARGER),
        ((8, 9, 10), (11, 12, 13), Difference.SMALLER),
        ((9, 12, 13), (8, 9, 10), Difference.NONE),
        ((12, 12), (12, 12), Difference.NONE),
        ((12,), (1, 2), Difference.UNKNOWN),
        ((12, 13), (1,), Difference.UNKNOWN),
    ],
)
def test_overlapping_rounds_show_no_difference(
    ours: tuple[float, ...], theirs: tuple[float, ...], difference: Difference
) -> None:
    assert Figures(ours).against(Figures(theirs)) is difference


def test_one_disturbed_round_does_not_move_the_median() -> None:
    assert Figures((10.0, 0.1, 11.0)).median == 10.0


def test_rounds_of_rows_that_should_be_the_same_are_pooled() -> None:
    assert pooled(Figures((1, 2)), Figures((3,))).values == (1, 2, 3)


def test_a_ratio_is_one_of_neighbours() -> None:
    assert ratios({0: 10.0, 1: 30.0, 2: 8.0}, {0: 5.0, 1: 10.0}) == Figures((2.0, 3.0))


def test_a_ratio_to_nothing_is_none() -> None:
    assert ratios({0: 10.0}, {0: 0.0}) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.5, "1.50"), (12.34, "12.3"), (99.96, "100"), (28511.3, "28,511")],
)
def test_three_digits_are_shown(value: float, text: str) -> None:
    assert number_text(value) == text


def test_the_spread_of_one_round_is_not_shown() -> None:
    assert spread_text(Figures((5.0,))) == ""
    assert ratio_text(Figures((5.0,))) == "5.00x"
    assert ratio_text(Figures((1.0, 2.0, 3.0))) == "2.00x (1.00 .. 3.00)"
