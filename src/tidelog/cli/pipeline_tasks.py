"""The line on a terminal that says how far a job is that has no micro-batches: `verify`.

It looks like that of the other pipelines (`pipeline_running`), and tells of stages and tasks. Spark
is asked whenever the line is drawn, a few times a second, by who draws it; nobody waits for that.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidelog.cli.output import duration_text, is_terminal
from tidelog.cli.pipeline_running import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.verify.spark_tasks import SparkTasks, TasksDone


@contextmanager
def tasks_shown(job: Job, spark: "SparkSession") -> Iterator[None]:
    """Until the end, if there is a person who sees it."""
    if job.is_json or not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only for terminals
    from rich.live import Live  # noqa: PLC0415

    from tidelog.pipeline.verify.spark_tasks import SparkTasks  # noqa: PLC0415 - for jobs

    drawn = _Drawn(job.name, SparkTasks(spark))
    # rich would take what is printed to stdout meanwhile, and write it to stderr.
    with Live(
        get_renderable=drawn.now,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def tasks_text(done: "TasksDone", took_s: float) -> str:
    """`45 of 200 tasks  4.5/s  1 of 2 stages  10 s`."""
    if not done.task_count:
        return f"planning  {duration_text(took_s)}"
    parts = [
        f"{done.tasks_done:,} of {done.task_count:,} tasks",
        f"{done.tasks_done / took_s if took_s else 0:,.1f}/s",
        f"{done.stages_done} of {done.stage_count} stages",
        duration_text(took_s),
    ]
    return "  ".join(parts)


class _Drawn:
    """What is on the line at any moment."""

    def __init__(self, name: str, tasks: "SparkTasks") -> None:
        from rich.spinner import Spinner  # noqa: PLC0415 - only for terminals

        self._name = name
        self._tasks = tasks
        self._started_s = time.monotonic()
        self._spinner = Spinner("dots")

    def now(self) -> Any:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark
        from rich.text import Text  # noqa: PLC0415

        took_s = time.monotonic() - self._started_s
        try:
            text = tasks_text(self._tasks.done(), took_s)
        except (Py4JError, OSError):
            return self._spinner  # Spark ends; why, is said by whoever waits for the job.
        self._spinner.update(text=Text(f"{self._name}: {text}"))
        return self._spinner
