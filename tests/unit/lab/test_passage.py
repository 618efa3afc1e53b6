"""What happens to records on their way is noted, and what came of them judged (B3)."""

from pathlib import Path

import pytest

from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.input_feed import value_of
from tidelog.lab.passage import Passage, PassageOutcome, PassagePlan, Watcher


class Lab:
    """A passage of six records through two partitions, and what its watcher was told."""

    def __init__(self, folder: Path, *, is_cancelled: bool) -> None:
        self.told: list[str] = []
        self.outcome = PassageOutcome()
        self.history = folder / "history.txt"
        self.passage = Passage(
            PassagePlan(
                folder=folder,
                history_name="history.txt",
                record_count=6,
                partition_count=2,
                replication_factor=1,
                topic_settings={},
            ),
            "localhost:9092",
            Watcher(lambda doing, _through: self.told.append(doing), lambda: is_cancelled),
            self.outcome,
        )


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, is_cancelled=False)


def test_what_fails_is_a_problem_that_says_what_was_done(lab: Lab) -> None:
    with lab.passage.watched():
        lab.passage.doing = "kill 3, broker"
        raise LabError("not in sync")
    assert lab.outcome.problems == ["kill 3, broker: not in sync"]
    assert not lab.outcome.is_good


def test_to_have_had_enough_is_no_problem(tmp_path: Path) -> None:
    lab = Lab(tmp_path, is_cancelled=True)
    with pytest.raises(StartCancelled), lab.passage.watched():
        lab.passage.pass_time(60.0)
    assert lab.outcome.problems == []


def test_what_happens_is_in_the_outcome_and_in_the_history(lab: Lab) -> None:
    lab.passage.note(7, "kill -9 driver: processes [1]")
    lab.passage.note(12, "kill -9 broker: broker 2")
    lines = [
        "kill -9 driver: processes [1], at 0 records",
        "kill -9 broker: broker 2, at 0 records",
    ]
    assert lab.outcome.happened == lab.told == lines
    assert lab.history.read_text() == f"   7 {lines[0]}\n  12 {lines[1]}\n"


def test_each_partition_must_hold_what_was_made_of_its_part(lab: Lab) -> None:
    made = {partition: [b"> " + value_of(n) for n in (0, 2, 4)] for partition in (0, 1)}
    lab.passage.judge(made_of=lambda value: b"> " + value, found_in=lambda each: made[each])
    first, second = lab.outcome.verdicts
    assert first.is_good
    assert (second.expected, second.lost, second.unexpected) == (3, 3, 3)
    assert not lab.outcome.is_good


def test_who_does_not_come_is_not_waited_for_without_end(lab: Lab) -> None:
    with pytest.raises(LabError, match="there is no Python worker after 0 s"):
        lab.passage.wait_for(lambda: None, "Python worker", within_s=0.0)
    assert lab.passage.wait_for(lambda: [3], "Python worker", within_s=0.0) == [3]
