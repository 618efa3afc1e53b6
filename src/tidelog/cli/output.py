"""How commands talk: results on stdout, complaints on stderr, JSON for scripts.

A table is drawn for a person at a terminal and plain for a pipe: the same columns and words, no
colours, no lines cut at the width of a window that is not there. JSON is one value per line.
"""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import IO, Any

Cell = str | int | None


def complain(message: str, *, command: str) -> None:
    """One sentence on stderr, led by the command that has something to say."""
    sentence = " ".join(message.split())
    sys.stderr.write(f"{command}: {sentence}\n")


def print_line(text: str = "") -> None:
    """One line of result on stdout."""
    sys.stdout.write(f"{text}\n")


def print_heading(text: str) -> None:
    """A line that stands out, where a person looks at it."""
    print_line(f"\x1b[1m{text}\x1b[0m" if _is_styled() else text)


def print_json(value: object) -> None:
    """One JSON value on one line of stdout."""
    print_line(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Rows under their columns' names; None is shown as a dash."""
    shown = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [_is_numeric([row[index] for row in rows]) for index in range(len(columns))]
    if is_terminal(sys.stdout):
        _draw_table(columns, shown, numeric)
    else:
        _write_plain_table(columns, shown, numeric)


def listed(words: Sequence[object]) -> str:
    """Words as a sentence lists them: 1; 1 and 2; 1, 2 and 3."""
    *others, last = map(str, words)
    return f"{', '.join(others)} and {last}" if others else last


def size_text(size_bytes: int) -> str:
    """A size for people: 0 B, 812 B, 1.5 KiB, 3.2 GiB."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(seconds: float) -> str:
    """A duration for people, in its two largest units: 12 s, 3 min 5 s, 2 d 4 h."""
    whole = int(seconds)
    parts = [
        (whole // 86_400, "d"),
        (whole // 3_600 % 24, "h"),
        (whole // 60 % 60, "min"),
        (whole % 60, "s"),
    ]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[:2])


def iso_time(timestamp_ms: int) -> str:
    """A timestamp for people, in UTC."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_terminal(stream: IO[Any]) -> bool:
    """Whether a person reads (or types) there."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _is_styled() -> bool:
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def _is_numeric(cells: Sequence[Cell]) -> bool:
    kinds = {type(cell) for cell in cells if cell is not None}
    return kinds == {int}


def _draw_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    from rich import box  # noqa: PLC0415 - only for terminals
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for column, is_number in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Text, not str: a topic's settings may hold what rich takes for markup.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _write_plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    widths = [max(len(line[index]) for line in (columns, *rows)) for index in range(len(columns))]
    for line in (columns, *rows):
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        print_line("  ".join(cells).rstrip())
