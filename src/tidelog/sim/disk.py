"""The disk of a simulated machine. It outlives the processes that use it.

Each process sees it through a `ProcessDisk` of its own, which refuses whatever the process tries
after its end: a dead process never writes. Its faults belong to the machine and stay over restarts:

    fill            nothing can be written, as with a full disk
    arm             operations on some files fail (`storage/faulty_disk.py`)
    fail_in         operations on all files in one folder fail: a disk of its own is mounted there
    fill_in         the same of a full disk
    slow, hang      work on the disk's threads takes longer, or does not end (`executor.py`)
    set_cold        nothing is in the page cache
    kill_after      its process dies between two operations, in the middle of whatever it does
    power_cut       what was not flushed may be gone (`storage/memory_disk.py`)
    heal            all but the last two
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tidelog.base.errors import DiskFull, StorageError
from tidelog.base.ports import HeldLock, LogFile
from tidelog.sim.clock import EPOCH_MS
from tidelog.sim.process import Process
from tidelog.sim.trace import Trace
from tidelog.sim.world import World
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.memory_disk import MemoryDisk

# Removing makes room; so does cutting a file.
_NEED_ROOM: Final = ("append", "replace_file", "make_folder", "create")
_CHANGES: Final = frozenset(
    {"append", "truncate", "flush", "open", "make_folder", "rename", "remove", "remove_folder",
     "replace_file", "flush_folder", "lock"}
)  # fmt: skip


_FLUSHES: Final = frozenset({"flush", "flush_folder"})
"""After one that failed a broker leaves a log dir alone until it is started again."""


class _Mount(NamedTuple):
    """A folder in which operations fail."""

    folder: Path
    error: type[StorageError]

    def fails(self, operation: str, path: Path) -> bool:
        if path != self.folder and self.folder not in path.parents:
            return False
        if self.error is DiskFull:
            return operation in _NEED_ROOM
        return operation not in _FLUSHES


class ProcessEnded(BaseException):
    """Raised into code of a process that is dead. Nobody is to catch it."""


class SimulatedDisk:
    """See the module docstring."""

    def __init__(
        self, world: World, machine: str, *, total_bytes: int, work_min_s: float, work_max_s: float
    ) -> None:
        """A piece of work on a thread takes between `work_min_s` and `work_max_s`."""
        self.machine = machine
        self.memory = MemoryDisk(total_bytes=total_bytes, now_ms=EPOCH_MS)
        self._random = world.random_for(f"disk of {machine}")
        self._world = world
        self._trace: Trace = world.trace
        self._work_min_s = work_min_s
        self.work_max_s = work_max_s
        self._slowness = 1.0
        self._faults = FaultyDisk(self.memory)
        self._attached: list[ProcessDisk] = []
        self._hanging: list[Callable[[], None]] | None = None
        self._changes_left: int | None = None
        self._is_looked_at = False
        self._mount: _Mount | None = None
        self._last_failed_s = -inf

    @property
    def last_failed_s(self) -> float:
        """When something that was tried there could last fail."""
        return self._world.now_s if self._is_failing else self._last_failed_s

    @property
    def _is_failing(self) -> bool:
        return self._mount is not None or self._faults.is_armed

    def attach(self, process: Process) -> "ProcessDisk":
        """The disk as `process` sees it, as long as it lives."""
        view = ProcessDisk(self, process)
        view.is_cold = self._faults.is_cold
        self._attached.append(view)
        process.at_end(lambda: self._detach(view))
        return view

    # -- faults ----------------------------------------------------------------------------------

    def arm(self, operation: str, pattern: str, error: type[StorageError]) -> None:
        """Fail `operation` on files whose names match, until `heal`."""
        self._faults.arm(operation, pattern, error)
        self._note("disk fault", operation)

    def fill(self) -> None:
        for operation in _NEED_ROOM:
            self._faults.arm(operation, "*", DiskFull)
        self._note("disk full", "")

    def fail_in(self, folder: Path) -> None:
        """Fail everything in one folder but flushes, until `heal`."""
        self._mount = _Mount(folder, StorageError)
        self._note("disk fails", str(folder))

    def fill_in(self, folder: Path) -> None:
        """As `fill`, in one folder."""
        self._mount = _Mount(folder, DiskFull)
        self._note("disk full", str(folder))

    def slow(self, factor: float) -> None:
        self._slowness = factor
        self._note("disk slow", str(factor))

    def hang(self) -> None:
        """Work that begins from now on waits for `heal`."""
        if self._hanging is None:
            self._hanging = []
            self._note("disk hangs", "")

    def set_cold(self) -> None:
        self._set_cold(is_cold=True)

    def kill_after(self, change_count: int) -> None:
        """Kill the process that uses it before the change after the next `change_count`."""
        self._changes_left = change_count

    def heal(self) -> None:
        self._last_failed_s = self.last_failed_s
        self._mount = None
        self._faults.heal()
        self._changes_left = None
        self._slowness = 1.0
        self._set_cold(is_cold=False)
        hanging, self._hanging = self._hanging, None
        for go_on in hanging or ():
            go_on()
        self._note("disk healed", "")

    def power_cut(self, random: Random) -> None:
        """Lose what was not flushed, or some of it. Every process that used it must be dead."""
        assert not self._attached
        self.memory.crash(random)
        self._note("power cut", "")

    # -- for processes and executors -------------------------------------------------------------

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """While this lasts it is read from outside of the simulation: nothing fails or counts."""
        self._is_looked_at = True
        try:
            yield
        finally:
            self._is_looked_at = False

    def attempt(self, process: Process, operation: str, path: Path) -> None:
        """Raise if this must not be done."""
        if self._is_looked_at:
            return
        if not process.is_alive:
            raise ProcessEnded
        if self._changes_left is not None and operation in _CHANGES:
            self._changes_left -= 1
            if self._changes_left < 0:
                self._changes_left = None
                process.kill()
                raise ProcessEnded
        if self._mount is not None and self._mount.fails(operation, path):
            raise self._mount.error(f"cannot {operation} {path}: fault injected")
        self._faults.attempt(operation, path)

    def work_s(self) -> float:
        """How long the next piece of work takes."""
        return self._slowness * self._random.uniform(self._work_min_s, self.work_max_s)

    def moment_of(self, work_s: float) -> float:
        """When, within that time, it is done."""
        return self._random.uniform(0.0, work_s)

    def is_hanging(self, go_on: Callable[[], None]) -> bool:
        """Whether work may not begin now; `go_on` is then called when it may."""
        if self._hanging is None:
            return False
        self._hanging.append(go_on)
        return True

    def _set_cold(self, *, is_cold: bool) -> None:
        self._faults.is_cold = is_cold
        for view in self._attached:
            view.is_cold = is_cold

    def _detach(self, view: "ProcessDisk") -> None:
        self._attached.remove(view)
        self._changes_left = None
        if not self._attached:
            self.memory.kill()

    def _note(self, phrase: str, detail: str) -> None:
        self._trace.note(self.machine, phrase, {"detail": detail} if detail else {})


class ProcessDisk(FaultyDisk):
    """A machine's disk as one process sees it: the `Disk` of `base/ports.py`."""

    def __init__(self, machine: SimulatedDisk, process: Process) -> None:
        super().__init__(machine.memory)
        self._machine = machine
        self._process = process

    def attempt(self, operation: str, path: Path) -> None:
        self._machine.attempt(self._process, operation, path)

    def open(self, path: Path) -> LogFile:
        if not self._machine.memory.exists(path):
            self.attempt("create", path)
        return super().open(path)

    def lock(self, path: Path) -> HeldLock:
        return _ProcessLock(self._process, super().lock(path))


class _ProcessLock:
    """A lock that its process can release as long as it lives; then it is gone anyway."""

    def __init__(self, process: Process, lock: HeldLock) -> None:
        self._process = process
        self._lock = lock

    def release(self) -> None:
        if self._process.is_alive:
            self._lock.release()
