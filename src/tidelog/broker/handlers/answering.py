"""What the answers of the administrative APIs have in common: nothing is throttled, error codes are
the message library's, and a client's time-out is kept.
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.static.primitive import i32Timedelta

from tidelog.base.errors import ErrorCode, RequestRefused

NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))

T = TypeVar("T")


def message_error(code: ErrorCode) -> MessageErrorCode:
    """The same code in the message library's words."""
    return MessageErrorCode(code)


async def within(
    allowed: datetime.timedelta, work: Callable[[], Awaitable[T]], *, otherwise: Callable[[], T]
) -> T:
    """What `work` returns, or what `otherwise` does when the time is up.

    Work that has begun may go on and succeed: the client does not know then, and has to look.
    With no time at all nothing is begun, as in Kafka.
    """
    if allowed <= datetime.timedelta(0):
        return otherwise()
    try:
        async with asyncio.timeout(allowed.total_seconds()):
            return await work()
    except TimeoutError:
        return otherwise()


async def within_or_refused(allowed: datetime.timedelta, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns. Raises RequestRefused(REQUEST_TIMED_OUT) when the time is up."""

    def refuse() -> T:
        raise RequestRefused(ErrorCode.REQUEST_TIMED_OUT)

    return await within(allowed, work, otherwise=refuse)
