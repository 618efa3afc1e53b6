"""The verdict follows from the counts; examples are few, the same for the same findings."""

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.verify.report import (
    Example,
    PartitionFindings,
    Problem,
    VerifyReport,
    fewest_examples,
    id_text,
)

PARTITION = TopicPartition("orders", 3)


def _report(problems: dict[Problem, int], allowed: frozenset[Problem]) -> VerifyReport:
    findings = PartitionFindings(
        partition=PARTITION,
        stored=5,
        acknowledged=5,
        unacknowledged=1,
        expired=2,
        problems=problems,
    )
    return VerifyReport(
        partitions=(findings, findings), examples=(), unreadable_lines=3, allowed=allowed
    )


def test_counts_are_those_of_all_partitions() -> None:
    report = _report({Problem.LOST: 2}, frozenset())
    assert report.counts[Problem.LOST] == 4
    assert report.counts[Problem.ALTERED] == 0
    assert (report.stored, report.unacknowledged, report.expired) == (10, 2, 4)


def test_only_problems_that_are_not_allowed_spoil_the_verdict() -> None:
    problems = {Problem.DUPLICATED: 1}
    assert _report({}, frozenset()).is_clean
    assert not _report(problems, frozenset()).is_clean
    assert _report(problems, frozenset({Problem.DUPLICATED})).is_clean
    assert not _report(problems, frozenset({Problem.LOST})).is_clean


def test_json_has_every_problem_of_every_partition() -> None:
    shown = _report({Problem.LOST: 2}, frozenset({Problem.MOVED})).to_json()
    assert (shown["clean"], shown["lost"], shown["moved"]) == (False, 4, 0)
    assert shown["allowed"] == ["moved"]
    partitions = shown["partitions"]
    assert isinstance(partitions, list)
    assert {problem.value for problem in Problem} <= partitions[0].keys()


def test_examples_are_the_first_of_each_problem_in_each_partition() -> None:
    examples = [
        Example(TopicPartition("orders", number % 2), number, "id", problem, "")
        for number in range(10)
        for problem in (Problem.LOST, Problem.MOVED)
    ]
    chosen = fewest_examples(reversed(examples), 2)
    assert [each.offset for each in chosen if each.problem is Problem.LOST] == [0, 2, 1, 3]
    assert len(chosen) == 8


def test_id_that_is_no_text_is_shown_in_base64() -> None:
    assert id_text(bytearray(b"abc")) == "abc"
    assert id_text(b"\xff\x00") == "/wA="
    assert id_text(None) == ""


def test_an_id_can_neither_move_the_cursor_nor_forge_a_line() -> None:
    example = Example(PARTITION, 7, "a\x1b[2J\nClean: é", Problem.LOST, "gone")
    assert example.shown_id == r"a\x1b[2J\nClean: é"
    assert example.to_json()["id"] == "a\x1b[2J\nClean: é"
