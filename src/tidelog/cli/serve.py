"""Run one broker in this process: read its settings, start it, name what is wrong with them.

Imports nothing but what a broker needs. `broker.py` is the same command as typer sees it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.errors import ConfigError, TidelogError


@dataclass(frozen=True, slots=True)
class BrokerArguments:
    """What was typed: a properties file, and settings that replace those in it."""

    config_file: Path
    assignments: tuple[str, ...]


def parse(arguments: Sequence[str]) -> BrokerArguments | None:
    """The arguments of `tidelog broker`, or None if there is anything to complain about."""
    config_file: Path | None = None
    assignments: list[str] = []
    remaining = list(arguments)
    while remaining:
        option, equals, value = remaining.pop(0).partition("=")
        if not equals:
            if not remaining:
                return None
            value = remaining.pop(0)
        match option:
            case "--config":
                config_file = Path(value)
            case "--set":
                assignments.append(value)
            case _:
                return None
    return None if config_file is None else BrokerArguments(config_file, tuple(assignments))


def run(arguments: BrokerArguments) -> int:
    """Serve until stopped. Exit 2 for a wrong setting, 1 if the broker cannot run."""
    # After a relaunch, if there was one: nothing above needs them.
    from tidelog import node  # noqa: PLC0415
    from tidelog.config.broker import BrokerConfig  # noqa: PLC0415
    from tidelog.config.properties import parse_assignment, read_properties  # noqa: PLC0415

    try:
        properties = read_properties(arguments.config_file)
        properties.update(map(parse_assignment, arguments.assignments))
        return node.run(BrokerConfig.load(properties))
    except ConfigError as error:
        return _complain(error, exit_code=2)
    except TidelogError as error:
        return _complain(error, exit_code=1)


def _complain(error: TidelogError, *, exit_code: int) -> int:
    sys.stderr.write(f"tidelog broker: {error}\n")
    return exit_code
