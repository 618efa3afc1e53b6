"""Ports that processes of this machine have chosen for their servers, so that no two choose one.

The port of a broker that was killed is free until it is started again, and whoever looks for a free
port would take it. So who chooses one locks a byte of a file that all share, at the port's number:

    the kernel lets go of it when the process ends, however it ends
    a process is not kept out by its own locks, so it remembers which it has

Processes of other users have a file of their own, and ports that somebody names are not asked for
here: to choose a port is still to be ready for finding it taken. The file does not follow TMPDIR:
ports are the machine's, whatever folder a process was given for its scraps.
"""

import fcntl
import os
from collections import deque
from pathlib import Path
from typing import Final

# Of a test run that starts thousands of brokers, the first have ended long ago.
CLAIMED_MAX: Final = 1_000
SHARED_BY_ALL = Path("/tmp")
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_claimed: Final[deque[int]] = deque()
_files: Final[dict[int, int]] = {}
"""By process: a fork has none of its parent's locks."""


def claim(port: int) -> bool:
    """Have the port for as long as this process lives; False if somebody has it."""
    if port in _claimed:
        return False
    try:
        descriptor = _descriptor()
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    except OSError:
        return True  # Nowhere to write it down: as good as it gets.
    _claimed.append(port)
    if len(_claimed) > CLAIMED_MAX:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, _claimed.popleft())
    return True


def _descriptor() -> int:
    """Opened once: to close any descriptor of the file would drop all locks."""
    process = os.getpid()
    if process not in _files:
        path = SHARED_BY_ALL / f"tidelog-ports-{os.getuid()}"
        _files[process] = os.open(path, _OPEN_FLAGS, 0o600)
    return _files[process]
