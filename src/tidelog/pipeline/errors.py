"""What goes wrong with a job, in words for whoever wrote it.

OptionError    an option is wrong, missing or contradicts another: nothing was started
DataLoss       records that the job should have read are not there any more
PipelineError  anything else that the job cannot go on with
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.base.errors import TidelogError

# Spark's, for the process in which it has Python plan a job, or write for it.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_OF_SPARK: Final = "PYTHON_WORKER_FACTORY_"


class PipelineError(TidelogError):
    """A job cannot go on."""


class OptionError(PipelineError):
    """One sentence that names the option to change."""


class DataLoss(PipelineError):
    """What was to be read is gone. `failOnDataLoss` decides whether that ends the job."""

    def __init__(self, what: str, remedy: str = "set failOnDataLoss to false") -> None:
        super().__init__(
            f"{what}. Records may have been missed: they were removed by retention or with their "
            f"topic before they were read. To go on without them, {remedy}."
        )
        self.what = what


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Have Spark show an error of ours that is raised within as it is, without a traceback.

    Who wrote an option wrong learns nothing from where that was found. The process of Spark's that
    this is called in ends with the error, so that nobody else's traceback is hidden.
    """
    try:
        yield
    except TidelogError:
        if any(name.startswith(_OF_SPARK) for name in os.environ):
            os.environ[_HIDE_TRACEBACK] = "1"
        raise
