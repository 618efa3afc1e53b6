"""A rate is kept on average, however the clock moves."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.cli.produce import parse_rate
from tidelog.cli.sending import Pacer


@pytest.mark.parametrize(("text", "rate"), [("1000", 1000), ("1000/s", 1000), ("0.5/s", 0.5)])
def test_rate_is_records_per_second(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "0.0/s", "-1", "1/m", "many", "1e3", "/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--rate is"):
        parse_rate(text)


def test_record_waits_for_its_turn() -> None:
    pacer = Pacer(records_per_s=10)
    assert pacer.seconds_ahead(100.0) == 0
    assert pacer.count_due(100.0, count_max=500) == 1
    assert pacer.seconds_ahead(100.0) == pytest.approx(0.1)
    assert pacer.seconds_ahead(100.1) == pytest.approx(0)


def test_time_lost_is_made_up_for() -> None:
    pacer = Pacer(records_per_s=10)
    assert pacer.count_due(100.0, count_max=500) == 1
    assert pacer.count_due(105.05, count_max=500) == 50
    assert pacer.seconds_ahead(105.05) == pytest.approx(0.05)


def test_no_more_are_due_than_there_are() -> None:
    pacer = Pacer(records_per_s=10)
    assert pacer.seconds_ahead(100.0) == 0
    assert pacer.count_due(105.05, count_max=3) == 3
    assert pacer.seconds_ahead(105.05) < 0


def test_fast_rate_is_kept_by_several_records_at_a_time() -> None:
    pacer = Pacer(records_per_s=100_000)
    counts = [pacer.count_due(100 + tick * 0.002, count_max=500) for tick in range(100)]
    assert sum(counts) == pytest.approx(0.2 * 100_000, rel=0.02)
