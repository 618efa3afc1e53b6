"""Where a transformer can be made to die, and by which signal it is told."""

import signal
from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Point(StrEnum):
    """A point of every transaction that a kill at random seldom hits."""

    BEFORE_COMMIT = "before it commits"
    AFTER_COMMIT = "after it has committed"


SIGNALS: Final[Mapping[Point, signal.Signals]] = {
    Point.BEFORE_COMMIT: signal.SIGUSR1,
    Point.AFTER_COMMIT: signal.SIGUSR2,
}
