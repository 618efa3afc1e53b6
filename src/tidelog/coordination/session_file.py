"""The proof that a session on this machine is alive: a lock and a lease, in one small file (C1).

The lock is the operating system's. The kernel drops it when the process dies, however it dies, so
a killed broker is noticed as soon as somebody looks. A process that hangs keeps its lock; that is
what the lease is for: a moment of monotonic time, written again and again, after which the session
may be declared dead. Monotonic time is one clock for all processes of a machine, and stands still
while the machine sleeps.

    session          lock      lease       verdict
    runs             held      ahead       alive
    killed           free      any         dead
    stopped, hung    held      past        dead once somebody declares it so

The lease is a file of its own and not a row in the database: a database that is full, locked or
slow to flush must not cost a healthy broker its session.

`flock` belongs to the open file, not to the process: several sessions of one process do not see
each other's locks as their own. A child made by fork without exec would keep the lock alive; Python
opens files so that exec closes them.
"""

import fcntl
import logging
import os
import struct
import threading
import time
from pathlib import Path

logger = logging.getLogger(__name__)

_LEASE = struct.Struct("<q")


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class SessionFile:
    """This process's own session: holds the lock and renews the lease on a thread of its own.

    That thread does nothing else, so neither the event loop nor a database that waits for its disk
    can make the lease run out. Only a process that was stopped is late. Somebody may have looked
    meanwhile; whether he did is in the database, so the lease is written again but counts only when
    `on_confirmed` says what the database said after that.
    """

    def __init__(self, path: Path, *, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self._path = path
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._closed = threading.Event()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._reliable_until_ms = self.renew()
        self._thread = threading.Thread(target=self._run, name="session-lease", daemon=True)
        self._thread.start()

    def is_reliable(self, for_ms: int) -> bool:
        """Whether nobody may call the session dead for so long."""
        return monotonic_ms() + for_ms < self._reliable_until_ms

    def renew(self) -> int:
        """Write the lease; until when it lasts. Raises OSError."""
        lease_end_ms = monotonic_ms() + self._session_timeout_ms
        os.pwrite(self._descriptor, _LEASE.pack(lease_end_ms), 0)
        return lease_end_ms

    def on_confirmed(self, lease_end_ms: int) -> None:
        """Nobody has called the session dead, nor may before the end of a lease that we wrote."""
        self._reliable_until_ms = max(self._reliable_until_ms, lease_end_ms)

    def close(self) -> None:
        """Stop renewing, drop the lock and remove the file."""
        self._closed.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _run(self) -> None:
        while not self._closed.wait(self._heartbeat_interval_ms / 1_000):
            try:
                lease_end_ms = self.renew()
            except OSError as error:
                # A lease that cannot be written runs out, which is the truth about this disk.
                logger.warning("lease not renewed", extra={"file": str(self._path)}, exc_info=error)
                continue
            # Asked after it was written: this thread may have been stopped in between.
            if self.is_reliable(0):
                self.on_confirmed(lease_end_ms)


class SessionProbe:
    """Looks at somebody else's session file, again and again, without disturbing it."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self._descriptor = None  # Removed by its owner or by whoever declared it dead.

    def is_unlocked(self) -> bool:
        """Whether the process that held the session is gone."""
        if self._descriptor is None:
            return True
        try:
            # Shared, so that two who look at the same moment do not take each other for the owner.
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return True

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the lease has run out."""
        if self._descriptor is None:
            return True
        lease = os.pread(self._descriptor, _LEASE.size, 0)
        if len(lease) < _LEASE.size:
            return False  # Made a moment ago and not yet written; the lock speaks for it.
        (deadline_ms,) = _LEASE.unpack(lease)
        return bool(deadline_ms < now_ms)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
