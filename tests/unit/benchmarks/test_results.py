"""What the report of a benchmark says follows from what was measured, and only from that."""

import json

import pytest

from benchmarks.results import MET, MISSED, UNDECIDED, Answer, Metric, Target, figure_text
from benchmarks.tables import markdown

AT_LEAST_KAFKA = Target(requirement="T3", of="tidelog", against="kafka", at_least=1.0)
A_MILLISECOND = Target(requirement="T8", of="tidelog", against=None, at_most=1.0)


def _answer(metric: Metric) -> Answer:
    return Answer("script", "How fast?", "python -m x", "today", {"cpu": "one"}, ["note"], [metric])


def test_one_disturbed_round_does_not_decide() -> None:
    metric = Metric("speed", "records/s", (AT_LEAST_KAFKA,))
    metric.values.update(tidelog=[11.0, 0.1, 12.0], kafka=[10.0, 10.0, 10.0])
    assert metric.verdict(AT_LEAST_KAFKA) == MET


def test_target_is_missed_below_its_limit() -> None:
    metric = Metric("speed", "records/s", (AT_LEAST_KAFKA,))
    metric.values.update(tidelog=[9.9], kafka=[10.0])
    assert metric.verdict(AT_LEAST_KAFKA) == MISSED


@pytest.mark.parametrize(("value", "verdict"), [(1.0, MET), (1.1, MISSED)])
def test_limit_without_a_peer_is_a_number(value: float, verdict: str) -> None:
    metric = Metric("opening", "ms", (A_MILLISECOND,))
    metric.record("tidelog", value)
    assert metric.verdict(A_MILLISECOND) == verdict


def test_nothing_is_met_that_was_not_measured() -> None:
    metric = Metric("speed", "records/s", (AT_LEAST_KAFKA,))
    metric.record("tidelog", 10.0)
    assert metric.verdict(AT_LEAST_KAFKA) == UNDECIDED


def test_answer_survives_json() -> None:
    metric = Metric("speed", "records/s", (AT_LEAST_KAFKA,))
    metric.record("tidelog", 10.0)
    answer = _answer(metric)
    assert Answer.from_json(json.loads(json.dumps(answer.to_json()))) == answer


def test_report_shows_medians_beside_the_target() -> None:
    metric = Metric("speed", "records/s", (AT_LEAST_KAFKA,))
    metric.values.update(kafka=[100.0], tidelog=[150.0, 250.0, 200.0])
    report = markdown(_answer(metric))
    assert "| metric | unit | tidelog | kafka |" in report
    assert "| 200 (150 .. 250) | 100 | 2.00 |" in report


def test_what_nothing_is_asked_of_is_compared_with_everything_beside_it() -> None:
    metric = Metric("write", "rows/s")
    metric.values.update(connector=[200.0], tidelog=[100.0])
    metric.values["at least once"] = [50.0]
    assert "| 0.500 of connector, 2.00 of at least once |" in markdown(_answer(metric))


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (1.0, "1.00"), (99.99, "100"), (12_345.6, "12,346")]
)
def test_figures_have_three_digits_that_matter(value: float, text: str) -> None:
    assert figure_text(value) == text
