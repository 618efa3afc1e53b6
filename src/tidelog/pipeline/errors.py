"""What goes wrong with a job, in words for whoever wrote it.

OptionError    an option is wrong, missing or contradicts another: nothing was started
DataLoss       records that the job should have read are not there any more
PipelineError  anything else that the job cannot go on with
"""

from tidelog.base.errors import TidelogError


class PipelineError(TidelogError):
    """A job cannot go on."""


class OptionError(PipelineError):
    """One sentence that names the option to change."""


class DataLoss(PipelineError):
    """What was to be read is gone. `failOnDataLoss` decides whether that ends the job."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Records may have been missed: they were removed by retention or with their "
            "topic before they were read. To go on without them, set failOnDataLoss to false."
        )
        self.what = what
