"""What a user is told who does not get all that was to be had, while the job goes on.

Spark plans and runs Python in processes of its own, several in turn, and passes on what they write
to standard error: those beside the driver to the driver's, which is the user's terminal also where
Spark's log is off, and those on a cluster's workers to the logs of their executors. There a warning
of `logging`, which nobody has configured, is a line by itself.

What holds for as long as a job runs is said once, by whichever process finds it first: they have a
folder in common, which Spark made for this application and removes with it.
"""

import logging
import os
import zlib
from pathlib import Path
from typing import Final

_FOLDERS: Final = "SPARK_LOCAL_DIRS"

logger = logging.getLogger(__name__)

_said: set[str] = set()
"""By this process."""


def warn(sentence: str) -> None:
    """Say it now, and whenever it is so again."""
    logger.warning("tidelog: %s", sentence)


def warn_once(sentence: str) -> None:
    """Say it unless it was said in this application of Spark's, or in this process without one."""
    if sentence in _said:
        return
    _said.add(sentence)
    if _is_first(sentence):
        warn(sentence)


def _is_first(sentence: str) -> bool:
    folder = os.environ.get(_FOLDERS, "").partition(",")[0]
    if not folder:
        return True
    mark = Path(folder) / f"tidelog-said-{zlib.crc32(sentence.encode()):08x}"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True  # Rather twice than never.
    return True
