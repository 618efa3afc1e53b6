"""Levels of loggers that change while a broker runs (P1, KIP-412)."""

import logging
from collections.abc import Iterator

import pytest

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.broker.loggers import BROKER_LOGGER, Loggers
from tidelog.core.controller.requests import ConfigAlteration, ConfigResource
from tidelog.telemetry.levels import LEVELS

SET, DELETE, APPEND = range(3)
PACKAGE, MODULE = "tidelog.broker", "tidelog.broker.dispatch"
OURS = ConfigResource(BROKER_LOGGER, "1")
LOGGERS = Loggers(BrokerId(1))


@pytest.fixture(autouse=True)
def _as_they_were() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("tidelog", PACKAGE, MODULE)]
    before = [logger.level for logger in loggers]
    logging.getLogger("tidelog").setLevel(logging.INFO)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def level_of(name: str) -> str | None:
    (found,) = LOGGERS.describe("1", [name])
    return found.value


def alter(
    *steps: tuple[str, int, str | None], name: str = "1", validate_only: bool = False
) -> ErrorCode:
    resource = ConfigResource(BROKER_LOGGER, name)
    alterations = [ConfigAlteration(*step) for step in steps]
    return LOGGERS.alter(resource, alterations, validate_only=validate_only).error


def test_a_level_holds_for_a_logger_and_those_below_it() -> None:
    assert alter((PACKAGE, SET, "DEBUG")) is ErrorCode.NONE
    assert [level_of(name) for name in ("root", PACKAGE, MODULE)] == ["INFO", "DEBUG", "DEBUG"]
    assert logging.getLogger(MODULE).isEnabledFor(logging.DEBUG)
    assert alter((PACKAGE, DELETE, None)) is ErrorCode.NONE
    assert not logging.getLogger(MODULE).isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_told_as_it_was_set(level: str) -> None:
    assert alter(("root", SET, level)) is ErrorCode.NONE
    assert level_of("root") == level_of(MODULE) == level


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ((MODULE, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((MODULE, SET, "debug"), ErrorCode.INVALID_CONFIG),
        ((MODULE, SET, None), ErrorCode.INVALID_REQUEST),
        ((MODULE, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("tidelog.nowhere", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        (("urllib3", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ((PACKAGE, SET, "WARN"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_of_several_all_change_or_none(step: tuple[str, int, str | None], code: ErrorCode) -> None:
    assert alter((PACKAGE, SET, "DEBUG"), step) is code
    assert level_of(PACKAGE) == "INFO"


def test_what_is_only_tried_changes_nothing() -> None:
    assert alter((PACKAGE, SET, "DEBUG"), validate_only=True) is ErrorCode.NONE
    assert level_of(PACKAGE) == "INFO"


@pytest.mark.parametrize("name", ["", "2", "abc", "-1", "9" * 5_000])
def test_loggers_of_others_are_not_here(name: str) -> None:
    assert alter((PACKAGE, SET, "DEBUG"), name=name) is ErrorCode.INVALID_REQUEST
    with pytest.raises(RequestRefused):
        LOGGERS.describe(name, None)
