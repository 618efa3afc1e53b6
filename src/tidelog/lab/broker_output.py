"""What a broker prints: the line that says it is ready, and the lines a person should see."""

import re
from collections import deque
from os import SEEK_END
from pathlib import Path
from typing import Final, NamedTuple

LAST_LINES_COUNT: Final = 10

_READY = re.compile(r"tidelog broker (\d+) listening on (\S*):(\d+)")
_ROUTINE = re.compile(r"\S+Z (DEBUG|INFO)\s")


class Ready(NamedTuple):
    """A broker serves clients at this address."""

    broker_id: int
    host: str
    port: int


def parse_ready(line: str) -> Ready | None:
    """What a line says about being ready, if it does."""
    found = _READY.fullmatch(line.strip())
    if found is None:
        return None
    broker_id, host, port = found.groups()
    return Ready(int(broker_id), host.removeprefix("[").removesuffix("]"), int(port))


def is_important(line: str) -> bool:
    """Whether a person should see `line`: all but what is routine and what is blank.

    Lines without a level - a stack trace, the interpreter's last words - are important.
    """
    return bool(line.strip()) and _ROUTINE.match(line) is None and parse_ready(line) is None


class OutputTail:
    """Whole lines appended to a file since the last look, starting at `position`.

    A file that has become shorter is another one, and read from its start.
    """

    def __init__(self, path: Path, position: int) -> None:
        self._path = path
        self._position = position
        self._half_line = ""

    def new_lines(self) -> list[str]:
        """Lines that were finished since the last call; none if the file is not there yet."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, SEEK_END) < self._position:
                    self._position, self._half_line = 0, ""
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        *whole, self._half_line = (self._half_line + data.decode(errors="replace")).split("\n")
        return whole


def last_lines(path: Path, *, from_position: int) -> tuple[str, ...]:
    """The end of the file, but nothing before `from_position`."""
    try:
        with path.open("rb") as file:
            file.seek(from_position)
            tail = deque(file, maxlen=LAST_LINES_COUNT)
    except FileNotFoundError:
        return ()
    return tuple(line.decode(errors="replace").rstrip() for line in tail)
