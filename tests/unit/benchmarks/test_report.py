"""RESULTS.md keeps what was not measured again, and says of what it is made."""

from benchmarks.report import script_of, updated
from benchmarks.results import Answer, Metric, Target

SCRIPTS = ("first", "second", "third")
AT_LEAST_KAFKA = Target(requirement="T3", of="tidelog", against="kafka", at_least=1.0)
ENVIRONMENT = {"cpu": "one | two", "tidelog": "abc1234", "load average before": "0.10 0.20 0.30"}


def _answer(script: str, ours: float) -> Answer:
    metric = Metric(f"speed of {script}", "records/s", (AT_LEAST_KAFKA,))
    metric.values.update(tidelog=[ours], kafka=[100.0])
    untargeted = Metric("beside it", "us", (), {"tidelog": [1.0]})
    command = f"python -m benchmarks.{script} --json"
    return Answer(
        script, f"How fast is {script}?", command, "today", ENVIRONMENT, [], [metric, untargeted]
    )


def _sections(report: str) -> list[str]:
    return [script_of(part) for part in report.split("\n## ")[1:] if script_of(part)]


def test_first_report_has_a_section_for_each_script() -> None:
    report = updated("", [_answer("second", 150), _answer("first", 150)], SCRIPTS)
    assert _sections(report) == ["first", "second"]


def test_what_is_measured_again_replaces_its_section_alone() -> None:
    before = updated("", [_answer("first", 150), _answer("third", 250)], SCRIPTS)
    after = updated(before, [_answer("first", 50)], SCRIPTS)
    assert _sections(after) == ["first", "third"]
    assert "| 50.0 | 100 | 0.500 |" in after
    assert "| 150 | 100 | 1.50 |" not in after
    assert "| 250 | 100 | 2.50 |" in after


def test_targets_of_all_sections_are_in_one_table() -> None:
    before = updated("", [_answer("first", 150)], SCRIPTS)
    report = updated(before, [_answer("second", 50)], SCRIPTS)
    table = report.split("## Targets\n")[1].split("\n## ")[0]
    assert table.strip().splitlines()[2:] == [
        "| T3: tidelog / kafka at least 1 | speed of first | 1.50 | met |",
        "| T3: tidelog / kafka at least 1 | speed of second | 0.500 | MISSED |",
    ]


def test_writing_the_same_answers_again_changes_nothing() -> None:
    answers = [_answer("first", 150), _answer("second", 50)]
    report = updated("", answers, SCRIPTS)
    assert updated(report, answers, SCRIPTS) == report


def test_section_says_of_which_commit_it_is() -> None:
    assert "today, tidelog abc1234, load average before 0.10" in updated(
        "", [_answer("first", 150)], SCRIPTS
    )


def test_script_that_is_no_longer_there_loses_its_section() -> None:
    before = updated("", [_answer("first", 150), _answer("third", 250)], SCRIPTS)
    assert _sections(updated(before, [_answer("first", 150)], ("first",))) == ["first"]
