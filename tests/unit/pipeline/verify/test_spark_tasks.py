"""What a job is said to have done is what Spark has done of what it knows (X5)."""

from tidelog.pipeline.verify.spark_tasks import StageTasks, TasksDone, tasks_done

DONE, HALF, WAITING = StageTasks(4, 0, 4), StageTasks(10, 2, 5), StageTasks(200, 0, 0)


def test_nothing_is_known_at_first() -> None:
    assert tasks_done([]) == tasks_done([{}]) == TasksDone(0, 0, 0, 0)


def test_stages_of_all_jobs_are_added_up() -> None:
    assert tasks_done([{0: DONE}, {1: HALF}]) == TasksDone(1, 2, 9, 14)


def test_a_stage_that_two_jobs_have_is_counted_once() -> None:
    assert tasks_done([{0: DONE}, {0: DONE, 1: HALF}]) == TasksDone(1, 2, 9, 14)


def test_what_a_job_is_for_is_work_before_it_has_begun() -> None:
    assert tasks_done([{0: HALF, 1: WAITING}]) == TasksDone(0, 2, 5, 210)


def test_a_stage_that_an_earlier_job_made_needless_is_no_work() -> None:
    assert tasks_done([{0: DONE}, {1: WAITING, 2: HALF}]) == TasksDone(1, 2, 9, 14)
