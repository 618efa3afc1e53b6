"""What the answers of the administrative APIs have in common: nothing is throttled, error codes are
the message library's, a client's time-out is kept, and nobody waits for a long answer to be made.
"""

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.static.primitive import i32Timedelta

from tidelog.base.errors import ErrorCode

NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))
# At some tens of microseconds each, others wait for a millisecond or two.
PARTS_PER_TURN: Final = 64

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


async def in_turns(parts: Iterable[T]) -> AsyncIterator[T]:
    """The parts of a request, which may be many, with a turn for everybody else in between."""
    for number, part in enumerate(parts, start=1):
        yield part
        if number % PARTS_PER_TURN == 0:
            await asyncio.sleep(0)
