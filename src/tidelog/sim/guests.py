"""Who may use a simulated cluster besides producers and consumers."""

from enum import Enum


class Guest(Enum):
    """What a run is asked to look at, beside the log itself."""

    GROUPS = "groups"
    COOPERATIVE = "cooperative"
    TRANSACTIONS = "transactions"
    DUPLICATES = "duplicates"
    LOG_DIRS = "log-dirs"
