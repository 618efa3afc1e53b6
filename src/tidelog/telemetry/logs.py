"""Structured log lines: a constant phrase, then fields.

`logger.info("log opened", extra={"partition": tp, "segments": 3})` becomes

    2026-03-01T12:00:00.123Z INFO  storage: log opened partition=orders-0 segments=3

Nothing here decides what is logged; see section 3.7 of the style guide for levels.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

# What every LogRecord has; anything else came in through `extra`.
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class FieldFormatter(logging.Formatter):
    """Prints the phrase and the `extra` fields of a record on one line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        area = record.name.removeprefix("tidelog.")
        fields = "".join(
            f" {name}={_shown(value)}"
            for name, value in vars(record).items()
            if name not in _STANDARD_FIELDS
        )
        phrase = _one_line(record.getMessage())
        line = f"{moment.replace('+00:00', 'Z')} {record.levelname:<7} {area}: {phrase}{fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def configure(level: str, stream: TextIO = sys.stderr) -> None:
    """Send every `tidelog` log line to `stream`. Called once, by the composition root."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FieldFormatter())
    root = logging.getLogger("tidelog")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def _shown(value: object) -> str:
    text = _one_line(str(value))
    return f'"{text}"' if " " in text or not text else text


def _one_line(text: str) -> str:
    # A client id or topic name from the wire must not be able to forge a log line.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
