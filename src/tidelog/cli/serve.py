"""Run one broker in this process: read its settings, start it, name what is wrong with them.

Imports nothing but what a broker needs. `broker.py` is the same command as typer sees it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.errors import ConfigError, TidelogError
from tidelog.config.broker import BrokerConfig
from tidelog.config.properties import parse_assignment, read_properties
from tidelog.lab import launch


@dataclass(frozen=True, slots=True)
class BrokerArguments:
    """What was typed: a properties file, settings that replace those in it, or both."""

    config_file: Path | None
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
    if config_file is None and not assignments:
        return None
    return BrokerArguments(config_file, tuple(assignments))


def run(arguments: BrokerArguments) -> int:
    """Serve until stopped. Exit 2 for a wrong setting, 1 if the broker cannot run."""
    try:
        config = _load(arguments)
        launch.allow_open_files()
        _do_without_hypothesis()
        # Late: what is wrong with the settings should be said before all of a broker is loaded.
        from tidelog import node  # noqa: PLC0415

        return node.run(config)
    except ConfigError as error:
        return _complain(error, exit_code=2)
    except TidelogError as error:
        return _complain(error, exit_code=1)


def _load(arguments: BrokerArguments) -> BrokerConfig:
    file = arguments.config_file
    properties = {} if file is None else read_properties(file)
    properties.update(map(parse_assignment, arguments.assignments))
    return BrokerConfig.load(properties)


def _do_without_hypothesis() -> None:
    """kio registers its types with Hypothesis wherever that is installed.

    Which is 80 MB and a tenth of a second that a broker has no use for, in the environment of
    somebody's tests as anywhere else. benchmarks/memory.py
    """
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


def _complain(error: TidelogError, *, exit_code: int) -> int:
    sys.stderr.write(f"tidelog broker: {error}\n")
    return exit_code
