"""Memory and processor time of other processes, as the kernel counts them."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidelog.lab.descendants import descendants

SAMPLE_INTERVAL_S = 0.05
# Who belongs to a family is found among all processes of the machine.
FAMILY_SAMPLE_INTERVAL_S = 0.2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Pages of the process that are in memory now (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1_024
    raise ProcessLookupError(f"process {pid} has no memory any more")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process since it started."""
    # The command name, in parentheses, may hold spaces and parentheses itself.
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class _Watch:
    """Takes a sample every `interval_s` between enter and exit, on a thread of its own."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._take_sample()

    def _take_sample(self) -> None:
        raise NotImplementedError


class ResidentPeak(_Watch):
    """Watches a process; `mib` is the largest resident size seen."""

    def __init__(self, pid: int) -> None:
        super().__init__(SAMPLE_INTERVAL_S)
        self.mib = resident_mib(pid)
        self._pid = pid

    def _take_sample(self) -> None:
        self.mib = max(self.mib, resident_mib(self._pid))


class FamilyWatch(_Watch):
    """Watches a process and all that come from it, such as Spark's JVM and its Python workers."""

    def __init__(self, pid: int) -> None:
        super().__init__(FAMILY_SAMPLE_INTERVAL_S)
        self.peak_mib = 0.0
        """The largest resident size of all of them together."""
        self._cpu_s: dict[int, float] = {}
        self._pid = pid

    @property
    def cpu_s(self) -> float:
        """Of all of them, as far as samples know."""
        return sum(self._cpu_s.values())

    def _take_sample(self) -> None:
        mib = 0.0
        for pid in (self._pid, *(each.pid for each in descendants(self._pid))):
            with suppress(ProcessLookupError, FileNotFoundError):  # It has ended meanwhile.
                mib += resident_mib(pid)
                self._cpu_s[pid] = cpu_seconds(pid)
        self.peak_mib = max(self.peak_mib, mib)
