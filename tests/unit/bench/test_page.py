"""The report is one file that says all there is to say (B1)."""

import json
import re
from html.parser import HTMLParser

import pytest

from tests.unit.bench.made_up import ABOUT, whole_results
from tidelog.bench.as_json import run_as_json, scenario_as_json
from tidelog.bench.document import CONCLUSIONS, SCENARIOS
from tidelog.bench.measured import TIDELOG, Results
from tidelog.bench.page import report_html

VOID = {"meta", "line", "circle", "polyline", "rect", "path"}


class _Nesting(HTMLParser):
    """Complains of an element that ends without having begun."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    return report_html(whole_results(), ABOUT)


def test_the_page_needs_no_other_file(page: str) -> None:
    assert not re.search(r'(src|href)="(?!#)', page)
    assert not re.search(r"@import|url\(|<script|<link", page)


def test_elements_are_nested_as_they_should_be(page: str) -> None:
    parser = _Nesting()
    parser.feed(page)
    assert parser.open == []


def test_every_scenario_and_conclusion_is_there(page: str) -> None:
    for number in SCENARIOS:
        assert f'id="scenario-{number}"' in page
    assert page.count('class="claim"') == len(CONCLUSIONS)


def test_the_page_says_how_where_and_by_what(page: str) -> None:
    for words in (
        "tidelog bench all --peer kafka",
        "2026-11-18 07:00 UTC",
        "two cores &lt;fast&gt;",
        "at most 50 records under way",
        "Kafka 0.10.1.0",
    ):
        assert words in page


def test_what_was_not_measured_is_said() -> None:
    results = Results((TIDELOG,), problems=["scenario 1 <x>: the load failed"])
    results.remarks.append("scenario 5 was not run on 10.0.0.1:9092")
    shown = report_html(results, ABOUT)
    assert "scenario 1 &lt;x&gt;: the load failed" in shown
    assert "scenario 5 was not run on 10.0.0.1:9092" in shown


@pytest.mark.parametrize("number", SCENARIOS)
def test_a_scenario_travels_as_json(number: int) -> None:
    told = json.loads(json.dumps(scenario_as_json(whole_results(), number)))
    assert told["scenario"] == number
    assert all("tidelog" in row and "kafka" in row for row in told["rows"])
    assert bool(told["conclusions"]) == (number != 6)


def test_ratios_and_every_round_are_in_the_json() -> None:
    row = json.loads(json.dumps(scenario_as_json(whole_results(), 1)))["rows"][0]
    assert row["document_tps"] == 28511.3
    assert len(row["tidelog"]["tps"]["rounds"]) == 3
    assert row["ratios"]["tps"]["median"] == 2.0


def test_the_run_is_told_once() -> None:
    told = json.loads(json.dumps(run_as_json(whole_results(), ABOUT)))
    assert told["command"] == ABOUT.command
    assert len(told["summary"]) == 5
    assert told["load"]["in_flight"] == 50
