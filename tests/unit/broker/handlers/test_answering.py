"""A client's time-out is kept, and error codes mean the same on both sides (P1)."""

import asyncio
from datetime import timedelta

import pytest

from tidelog.base.errors import ErrorCode
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error, within

A_MINUTE = timedelta(minutes=1)
A_MOMENT = timedelta(milliseconds=1)


@pytest.mark.parametrize("code", ErrorCode)
def test_error_codes_have_the_same_name_and_number(code: ErrorCode) -> None:
    assert message_error(code).name == code.name.lower()
    assert int(message_error(code)) == code


def test_nothing_is_throttled() -> None:
    assert timedelta(0) == NO_THROTTLE


async def _answer() -> str:
    return "done"


async def _forever() -> str:
    await asyncio.Event().wait()
    return "never"


def test_work_that_is_done_in_time_counts() -> None:
    assert asyncio.run(within(A_MINUTE, _answer, otherwise=lambda: "late")) == "done"


def test_work_that_takes_too_long_is_left_alone() -> None:
    assert asyncio.run(within(A_MOMENT, _forever, otherwise=lambda: "late")) == "late"


@pytest.mark.parametrize("allowed", [timedelta(0), -A_MOMENT])
def test_without_time_nothing_is_begun(allowed: timedelta) -> None:
    begun = []

    async def begin() -> str:
        begun.append(True)
        return "done"

    assert asyncio.run(within(allowed, begin, otherwise=lambda: "late")) == "late"
    assert not begun
