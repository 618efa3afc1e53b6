"""Every API without a codec of its own: kio's message classes, always in the newest version.

A handler knows one shape per message. A request of an older version arrives with the defaults of
the fields it did not have; an answer loses the fields that its version does not have:

    frame ──decode──▶ class of the request's version ──convert──▶ newest class ──▶ handler
    frame ◀──encode── class of the request's version ◀──convert── newest class ◀── handler

A broker that asks another one something goes the same ways in the other direction.

kio takes a tenth of a second to import, so it is imported at first use (message_classes.py), and a
broker whose clients only produce and consume never does.
"""

from typing import TYPE_CHECKING, Final

from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, is_flexible
from tidelog.wire.primitives import Reader

if TYPE_CHECKING:
    from types import ModuleType

# Administration comes in small requests. Decoded, they take about fifty times their size.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024


def decode_request(api_key: ApiKey, version: int, view: memoryview, position: int) -> object:
    """The request whose body starts at `position`, as kio's newest class of that API.

    The version is one that kio knows; all of SUPPORTED are.
    """
    require_size(api_key, len(view) - position)
    reader = Reader(view, position, flexible=is_flexible(api_key, version))
    decoded: object = _classes().decode_request(api_key, version, reader)
    return decoded


def decode_response(api_key: ApiKey, version: int, view: memoryview, position: int) -> object:
    """The answer whose body starts at `position`, as kio's newest class of that API."""
    size_bytes = len(view) - position
    if size_bytes > BODY_BYTES_MAX:
        raise WireError(f"{api_key.name} response of {size_bytes} bytes, at most {BODY_BYTES_MAX}")
    reader = Reader(view, position, flexible=is_flexible(api_key, version))
    decoded: object = _classes().decode_response(api_key, version, reader)
    return decoded


def require_size(api_key: ApiKey, size_bytes: int) -> None:
    """Raises WireError unless a request may have so many bytes."""
    if size_bytes > BODY_BYTES_MAX:
        raise WireError(f"{api_key.name} request of {size_bytes} bytes, at most {BODY_BYTES_MAX}")


def count_parts(message: object, *, enough: int) -> int:
    """How many structures `message` is made of; counting stops at about `enough`."""
    count = 0
    parts = [message]
    while parts and count < enough:
        count += 1
        part = parts.pop()
        for name in getattr(part, "__dataclass_fields__", ()):
            value = getattr(part, name)
            if isinstance(value, tuple):
                parts.extend(value[: enough - count + 1])
    return count


def encode_response(message: object, version: int, correlation_id: int) -> bytes:
    """The whole frame that answers a request of `version` with `message`, of any version."""
    encoded: bytes = _classes().encode_response(message, version, correlation_id)
    return encoded


def encode_request(message: object, version: int, correlation_id: int, client_id: str) -> bytes:
    """The whole frame of a request of `version` that says `message`, of any version."""
    encoded: bytes = _classes().encode_request(message, version, correlation_id, client_id)
    return encoded


def warm_up() -> None:
    """Import kio now rather than with the first request that needs it."""
    _classes()


def _classes() -> "ModuleType":
    from tidelog.wire import message_classes  # noqa: PLC0415 - see the module's docstring

    return message_classes
