"""Where a figure was measured: a number without its machine is not a number."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from tidelog import __version__
from tidelog.lab.peers import KAFKA_VERSION, why_kafka_is_unavailable

# Of a checkout; an installed package has no commit, and its version says what it is.
ROOT = Path(__file__).resolve().parents[3]


def describe_environment() -> dict[str, str]:
    reason = why_kafka_is_unavailable()
    return {
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": _memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "client": f"confluent-kafka {version('confluent-kafka')}, "
        f"librdkafka {confluent_kafka.libversion()[0]}",
        "kafka": reason or f"Apache Kafka {KAFKA_VERSION}, {java_version()}",
        "tidelog": _commit(),
        "load average before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def _cpu_model() -> str:
    known = Path("/proc/cpuinfo")
    for line in known.read_text("utf-8").splitlines() if known.exists() else ():
        if line.startswith("model name"):
            return line.split(":", maxsplit=1)[1].strip()
    return platform.machine()


def _memory() -> str:
    size_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size_bytes / 2**30:.1f} GiB"


def java_version() -> str:
    """As it names itself."""
    lines = _output("java", "-version").splitlines()
    return lines[0].strip() if lines else "java of unknown version"


def _commit() -> str:
    if not (ROOT / ".git").exists():
        return __version__
    commit = _output("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD").strip()
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--", "src").strip()
    return f"{commit or 'no commit'}{' with changes' if changed else ''}"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout + done.stderr
