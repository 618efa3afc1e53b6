"""Decide which command line runs: the broker's own, or everybody's.

`tidelog broker` must be serving a few hundred milliseconds after it was typed, and typer, rich and
confluent-kafka alone take longer to import than it takes to open a log. So its arguments are read
by hand (`serve.py`), and only if they are exactly right; anything else - a typo, `--help` - goes to
typer, which words every complaint.

Exit codes of every command: 0 done, 1 the answer is no, 2 wrong usage or setting, 130 interrupted.
"""

import os
from collections.abc import Sequence

_COMPLETION_VARIABLE = "_TIDELOG_COMPLETE"


def main(arguments: Sequence[str]) -> int:
    """Run `tidelog` with these arguments and return its exit code."""
    if arguments[:1] == ["broker"] and _COMPLETION_VARIABLE not in os.environ:
        code = _serve(arguments[1:])
        if code is not None:
            return code

    from tidelog.cli import app  # noqa: PLC0415 - loads typer

    return app.run(arguments)


def _serve(arguments: Sequence[str]) -> int | None:
    """Run a broker; None if its arguments are for typer to judge."""
    from tidelog.lab import launch  # noqa: PLC0415

    # First of all: whatever is imported before is imported twice.
    launch.relaunch_if_needed()

    from tidelog.cli import serve  # noqa: PLC0415

    parsed = serve.parse(arguments)
    return None if parsed is None else serve.run(parsed)
