"""The processes that a process has started, and those that they have: what to kill of a Spark job.

    driver (Python) ── JVM ── pyspark.daemon ── workers
                          └── planners, runners of a stream's source and sink

Read from /proc; on a machine without it there are none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, order=True)
class Descendant:
    """A process below another one."""

    pid: int
    command: str

    @property
    def is_java(self) -> bool:
        return Path(self.command.split("\0")[0]).name == "java"


def descendants(pid: int) -> list[Descendant]:
    """Of a process, not itself; those nearer to it first."""
    children: dict[int, list[int]] = {}
    for parent, child in _parents():
        children.setdefault(parent, []).append(child)
    found: list[Descendant] = []
    waiting = sorted(children.get(pid, ()))
    while waiting:
        one = waiting.pop(0)
        command = _command(one)
        if command is not None:
            found.append(Descendant(one, command))
        waiting += sorted(children.get(one, ()))
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for folder in _PROC.glob("[0-9]*"):
        try:
            # The name, in parentheses, may hold anything.
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # It has ended meanwhile.
        if fields[0] != "Z":
            yield int(fields[1]), int(folder.name)


def _command(pid: int) -> str | None:
    try:
        return (_PROC / str(pid) / "cmdline").read_text("utf-8", "replace")
    except OSError:
        return None
