"""Memory and processor time of another process, as the kernel counts them."""

import os
import threading
from pathlib import Path
from typing import Self

SAMPLE_INTERVAL_S = 0.05
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


class ResidentPeak:
    """Watches a process between enter and exit; `mib` is the largest resident size seen."""

    def __init__(self, pid: int) -> None:
        self.mib = resident_mib(pid)
        self._pid = pid
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLE_INTERVAL_S):
            self.mib = max(self.mib, resident_mib(self._pid))
