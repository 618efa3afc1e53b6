"""How many of a job's tasks Spark has done, for a line that says so while nothing else can.

Spark plans as it goes: of a query with three stages only those are known that have what they need,
so what there is to do grows while it is done. Stages of a job that it did not run, because an
earlier one had made what they make, are no work and are left out.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.core.status import StatusTracker
    from pyspark.sql import SparkSession


class StageTasks(NamedTuple):
    """Of one stage."""

    task_count: int
    active_count: int
    done_count: int

    @property
    def has_begun(self) -> bool:
        return self.active_count + self.done_count > 0


class TasksDone(NamedTuple):
    """Of all stages that are known."""

    stages_done: int
    stage_count: int
    tasks_done: int
    task_count: int


class SparkTasks:
    """Tasks of one session, from the moment on that this is made."""

    def __init__(self, spark: "SparkSession") -> None:
        self._tracker: StatusTracker = spark.sparkContext.statusTracker()
        self._earlier = frozenset(self._tracker.getJobIdsForGroup())

    def done(self) -> TasksDone:
        jobs = sorted(set(self._tracker.getJobIdsForGroup()) - self._earlier)
        return tasks_done(map(self._stages_of, jobs))

    def _stages_of(self, job_id: int) -> dict[int, StageTasks]:
        job = self._tracker.getJobInfo(job_id)
        found = {}
        for stage_id in () if job is None else job.stageIds:
            stage = self._tracker.getStageInfo(stage_id)
            if stage is not None:
                found[int(stage_id)] = StageTasks(
                    stage.numTasks, stage.numActiveTasks, stage.numCompletedTasks
                )
        return found


def tasks_done(jobs: Iterable[dict[int, StageTasks]]) -> TasksDone:
    """`jobs`: the stages of each, by their numbers; the last is what the others are for."""
    counted = {
        stage_id: stage
        for stages in jobs
        for stage_id, stage in stages.items()
        if stage.has_begun or stage_id == max(stages)
    }
    return TasksDone(
        stages_done=sum(each.done_count >= each.task_count for each in counted.values()),
        stage_count=len(counted),
        tasks_done=sum(each.done_count for each in counted.values()),
        task_count=sum(each.task_count for each in counted.values()),
    )
