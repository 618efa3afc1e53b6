"""Levels of loggers while the process runs, under Kafka's names for levels.

A logger is a module or a package of ours, or `root`, which is all of them. One that has no level of
its own has that of the nearest above it. What is set here is gone with the process.
"""

import logging
from collections.abc import Mapping
from typing import Final

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""From the quietest to the loudest. Nothing is logged below DEBUG; TRACE shows what DEBUG does."""

_TREE: Final = "tidelog"


def levels() -> dict[str, str]:
    """The level that counts, of every logger there is."""
    known = logging.root.manager.loggerDict
    names = sorted(name for name in known if name.startswith(f"{_TREE}."))
    return {ROOT: _effective(_TREE), **{name: _effective(name) for name in names}}


def set_level(name: str, level: str | None) -> None:
    """Give a logger a level of its own; None takes it away. Both must be known here."""
    assert level is not None or name != ROOT
    logger = logging.getLogger(_TREE if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _effective(name: str) -> str:
    number = logging.getLogger(name).getEffectiveLevel()
    # One between two of ours lets through what the quieter one does, and more.
    return next((level for level, least in LEVELS.items() if number >= least), "TRACE")
