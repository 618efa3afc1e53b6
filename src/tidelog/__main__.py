"""Entry of `tidelog` and `python -m tidelog`: refuse to run without assertions, then call the cli.

Assertions are part of the design (they stop a broker that has seen the impossible before it
acknowledges anything else), and `python -O` would take them out.
"""

import os
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    _open_standard_streams()
    if not __debug__:
        sys.stderr.write("tidelog does not run under python -O: its assertions are needed\n")
        return 2
    from tidelog.cli.main import main as run  # noqa: PLC0415 - not before the refusal

    return run(sys.argv[1:])


def _open_standard_streams() -> None:
    """Let those that were closed lead nowhere: the next file or socket would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


if __name__ == "__main__":
    sys.exit(main())
