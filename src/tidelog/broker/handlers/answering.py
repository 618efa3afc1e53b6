"""What the answers of the administrative APIs have in common: nothing is throttled, and error codes
are the message library's.
"""

import datetime
from typing import Final

from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.static.primitive import i32Timedelta

from tidelog.base.errors import ErrorCode

NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))


def message_error(code: ErrorCode) -> MessageErrorCode:
    """The same code in the message library's words."""
    return MessageErrorCode(code)


def is_out_of_time(timeout: datetime.timedelta) -> bool:
    """Whether the client gave no time at all: then nothing is done, as in Kafka."""
    return timeout <= datetime.timedelta(0)
