"""What happened in a simulation, for people and for comparing two runs.

The *history* is a bounded list of lines: virtual time, process, a constant phrase, fields. Log
lines of the code that is simulated go there too (`TraceHandler`), stamped with virtual time and
with the process that wrote them.

The *digest* takes in every turn of every process and every byte that arrives, whether or not
anybody keeps a history. Two runs with the same digest did the same.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Final
from zlib import crc32

from tidelog.base.ports import BytesLike

LOGGER = "tidelog"
WORLD = "world"
# Of the fields of a log record, those that did not come in through `extra`.
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_TURN: Final = Struct(">dIII")


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One thing that happened."""

    moment_s: float
    process: str
    phrase: str
    fields: str

    def __str__(self) -> str:
        return f"{self.moment_s:12.6f} {self.process:<12} {self.phrase}{self.fields}"


class Trace:
    """See the module docstring. `lines_max` 0 keeps no history."""

    def __init__(self, now_s: Callable[[], float], *, lines_max: int) -> None:
        self.digest = 0
        self._now_s = now_s
        self._lines: deque[TraceLine] = deque(maxlen=lines_max)
        self._keeps_history = lines_max > 0

    @property
    def lines(self) -> list[TraceLine]:
        return list(self._lines)

    def history(self) -> str:
        """The lines that are left, as text."""
        return "".join(f"{line}\n" for line in self._lines)

    def note(self, process: str, phrase: str, fields: Mapping[str, object]) -> None:
        """Something happened that people want to read about.

        Fields are not part of the digest: how they print may depend on addresses in memory.
        """
        moment_s = self._now_s()
        self.digest = crc32(f"{moment_s!r} {process} {phrase}".encode(), self.digest)
        if self._keeps_history:
            shown = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
            self._lines.append(TraceLine(moment_s, process, phrase, shown))

    def on_turn(self, moment_s: float, process_number: int, callback_count: int) -> None:
        self.digest = crc32(_TURN.pack(moment_s, process_number, callback_count, 0), self.digest)

    def on_arrival(self, moment_s: float, stream_number: int, data: BytesLike) -> None:
        self.digest = crc32(_TURN.pack(moment_s, stream_number, len(data), 1), self.digest)
        self.digest = crc32(data, self.digest)

    @contextmanager
    def capturing_logs(self, level: int, writer: Callable[[], str | None]) -> Iterator[None]:
        """While this lasts, log lines of `level` and above are lines of the history.

        Others cost what a logger that is off costs, and none goes anywhere else. `writer` says
        whose lines they are; None drops them.
        """
        logger = logging.getLogger(LOGGER)
        before = logger.handlers[:], logger.level, logger.propagate
        logger.handlers[:] = [TraceHandler(self, writer)]
        logger.setLevel(level)
        logger.propagate = False
        try:
            yield
        finally:
            logger.handlers[:], level_before, logger.propagate = before
            logger.setLevel(level_before)


class TraceHandler(logging.Handler):
    """Puts log lines into a trace."""

    def __init__(self, trace: Trace, writer: Callable[[], str | None]) -> None:
        super().__init__()
        self._trace = trace
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        writer = self._writer()
        if writer is None:
            return
        fields = {
            name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = repr(record.exc_info[1])
        phrase = f"{record.levelname} {record.getMessage()}"
        self._trace.note(writer, phrase, fields)


def _shown(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text or not text else text
