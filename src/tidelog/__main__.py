"""Entry of `tidelog` and `python -m tidelog`: refuse to run without assertions, then call the cli.

Assertions are part of the design (they stop a broker that has seen the impossible before it
acknowledges anything else), and `python -O` would take them out.
"""

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    if not __debug__:
        sys.stderr.write("tidelog does not run under python -O: its assertions are needed\n")
        return 2
    from tidelog.cli.main import main as run  # noqa: PLC0415 - not before the refusal

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
