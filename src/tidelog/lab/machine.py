"""Where something was run, and with which versions: what a report is worth nothing without."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from tidelog import __version__


def describe_machine() -> dict[str, str]:
    """Pairs to show."""
    size_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{size_bytes / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "tidelog": __version__,
        "client": f"confluent-kafka {version('confluent-kafka')}, "
        f"librdkafka {confluent_kafka.libversion()[0]}",
        "load average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    for line in known.read_text("utf-8").splitlines() if known.exists() else ():
        if line.startswith("model name"):
            return line.split(":", maxsplit=1)[1].strip()
    return platform.machine()
