"""What may be wrong with the files of a partition.

TornTail         what a crash leaves at the end of a log: an option goes on without it
DamagedSegment   something else that is no batch: nothing goes on without it
MissingOffsets   a log without some of its segments: an option goes on without them
SegmentsChanged  not what it was when the job was planned: run the job again
"""

from pathlib import Path
from typing import Final

from tidelog.pipeline.errors import PipelineError

TORN_TAIL_OPTION: Final = "ignoreTornTail"
DATA_LOSS_OPTION: Final = "failOnDataLoss"


class SegmentError(PipelineError):
    """A partition cannot be read from its files."""


class TornTail(SegmentError):
    """The last segment ends with something that is no whole batch."""

    def __init__(self, path: Path, *, position: int, size_bytes: int, offset: int) -> None:
        super().__init__(
            f"{path} ends with {size_bytes} bytes from position {position} on that are no whole "
            f"batch, as a crash leaves them: set {TORN_TAIL_OPTION} to true to read up to there "
            f"(offset {offset}), or read a replica that has more"
        )
        self.path = path
        self.position = position
        self.offset = offset


class MissingOffsets(SegmentError):
    """Offsets that are wanted are not in the files."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Read another replica, or set {DATA_LOSS_OPTION} to false to go on without "
            "them"
        )


class DamagedSegment(SegmentError):
    """Something amid a log is not what was written there."""

    def __init__(self, path: Path | str, *, position: int, offset: int, problem: str) -> None:
        super().__init__(
            f"{path} is damaged at position {position}, offset {offset}: {problem}. Read another "
            "replica, or the offsets before and behind it"
        )
        self.path = Path(path)
        self.position = position
        self.offset = offset


class SegmentsChanged(SegmentError):
    """Retention, compaction or a truncation came between the plan and the reading."""
