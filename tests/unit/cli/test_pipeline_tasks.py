"""How the line reads that says how far `verify` is."""

from tidelog.cli.pipeline_tasks import tasks_text
from tidelog.pipeline.verify.spark_tasks import TasksDone


def test_tasks_are_told_with_rate_stages_and_time() -> None:
    text = tasks_text(TasksDone(1, 2, 1_300, 1_400), 130.0)
    assert text == "1,300 of 1,400 tasks  10.0/s  1 of 2 stages  2 min 10 s"


def test_before_any_task_there_is_a_time() -> None:
    assert tasks_text(TasksDone(0, 0, 0, 0), 3.2) == "planning  3 s"


def test_no_time_is_no_rate() -> None:
    assert tasks_text(TasksDone(0, 1, 0, 4), 0.0) == "0 of 4 tasks  0.0/s  0 of 1 stages  0 s"
