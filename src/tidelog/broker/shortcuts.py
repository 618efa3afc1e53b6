"""The compiled shortcuts for ordinary requests, on machines where they were compiled.

They are built from `_shortcuts.pyx` when tidelog is installed where there is a C compiler
(`hatch_build.py`). Without them everything takes the way through Python, with the same result.
"""

import asyncio
import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.ports import Clock
from tidelog.broker.after_read import AfterRead
from tidelog.broker.connection import Connection, ConnectionOwner, RequestShortcut
from tidelog.broker.fetch_interest import FetchInterest
from tidelog.broker.handlers.fetch import FetchHandler, FetchShortcut, no_fetch_shortcut
from tidelog.broker.handlers.produce import ProduceShortcut, no_produce_shortcut
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.partitions import Partitions
from tidelog.broker.replica_fetcher import FollowShortcut, ReplicaFetcher
from tidelog.core.sessions import FetchSession
from tidelog.wire.api import RequestHeader
from tidelog.wire.fetch import FetchRequest
from tidelog.wire.fetch_client import fetch_request_end
from tidelog.wire.produce_template import ProduceTemplate

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).parent
COMMON_MAX_BYTES = 33_000
"""Before the body of a request: a name of up to 32 KB and a few numbers."""


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """What makes a shortcut for a connection, or None if only Python will do."""

    produce: ProduceShortcut
    fetch: FetchShortcut
    follow: Callable[[ReplicaFetcher], FollowShortcut | None]
    protocol: Callable[[Connection, ConnectionOwner], asyncio.BufferedProtocol]


def _no_follow_shortcut(_fetcher: ReplicaFetcher) -> FollowShortcut | None:
    return None


def _the_connection(connection: Connection, _owner: ConnectionOwner) -> asyncio.BufferedProtocol:
    return connection


NO_SHORTCUTS = Shortcuts(
    no_produce_shortcut, no_fetch_shortcut, _no_follow_shortcut, _the_connection
)
"""All through Python, as where there is no compiler."""


def source_checksum(folder: Path) -> int:
    """Of what is compiled, as `hatch_build.py` states it."""
    checksum = 0
    for path in sorted([*folder.glob("_shortcuts*.pyx"), *folder.glob("_shortcuts*.pxi")]):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return checksum


def _load() -> "ModuleType | None":
    try:
        compiled = importlib.import_module("tidelog.broker._shortcuts")
    except ImportError:
        return None
    is_stale = source_checksum(FOLDER) != compiled.SOURCE_CHECKSUM
    return None if is_stale else compiled


_compiled = _load()


def is_compiled() -> bool:
    """Whether this installation has the shortcuts."""
    return _compiled is not None


def _produce_shortcut(
    template: ProduceTemplate | None,
    partitions: Partitions,
    clock: Clock,
    connection: Connection,
    loop: asyncio.AbstractEventLoop,
    after_read: AfterRead,
    turns: HeavyTurns,
) -> RequestShortcut | None:
    """For requests like `template`."""
    if template is None:
        return None
    assert _compiled is not None
    made: RequestShortcut = _compiled.FastProduce(
        template, partitions, clock, connection, loop, after_read, turns
    )
    return made


def _fetch_shortcut(
    handler: FetchHandler,
    connection: Connection,
    interest: FetchInterest,
    header: RequestHeader,
    request: FetchRequest,
    frame: memoryview,
) -> RequestShortcut | None:
    """For requests of a follower's session."""
    if not isinstance(interest.fetch, FetchSession) or request.replica_epoch < 0:
        return None  # Before version 15 a follower says who it is at the start.
    if request.forgotten or request.rack_id or request.isolation_level != 0:
        return None
    if request.max_wait_ms <= 0 or request.min_bytes <= 0:
        return None  # It does not wait.
    if header.body_position > COMMON_MAX_BYTES:
        return None
    end = fetch_request_end(header.api_version, request)
    if frame[-len(end) :] != end:
        return None
    assert _compiled is not None
    made: RequestShortcut = _compiled.FastFetch(
        handler, connection, interest, header, request, bytes(frame[: 2 * COMMON_MAX_BYTES]), end
    )
    return made


def _follow_shortcut(fetcher: ReplicaFetcher) -> FollowShortcut | None:
    assert _compiled is not None
    made: FollowShortcut = _compiled.FastFollow(fetcher)
    return made


def _protocol(connection: Connection, owner: ConnectionOwner) -> asyncio.BufferedProtocol:
    assert _compiled is not None
    made: asyncio.BufferedProtocol = _compiled.FastProtocol(connection, owner)
    return made


SHORTCUTS = NO_SHORTCUTS
if _compiled is not None:
    SHORTCUTS = Shortcuts(_produce_shortcut, _fetch_shortcut, _follow_shortcut, _protocol)
