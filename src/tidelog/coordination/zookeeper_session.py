"""One ZooKeeper session and how long it may be relied on (C6).

A server ends a session that it has not heard of for the session time-out, and then somebody else
may have our claims. A client that is cut off does not hear of that, so it must know by itself when
to stop believing: that is the *lease*, kept by a thread of its own that neither the event loop nor
a slow reader can hold up.

    answered heartbeat, sent at t ──▶ lease until t + 5/6 of the time-out

    t      t + 1/12        t + 5/12            t + 5/6        t + 1
    ├─ heartbeat, ... ────────┼───────────────────┼──────────────┤
       every 1/12             │                   │              └ the servers may end it
                              │                   └ lost, whatever becomes of the connection
                              └ no answer for 1/3: another server is tried

A heartbeat is a `sync`, which the ensemble's leader answers: a follower that is itself cut off from
the leader would go on answering reads and pings. Followers tell the leader every half tick whom
they have heard of, and one may die before it has; so what the leader knows is older than the last
answered heartbeat by up to half a tick and one heartbeat. The sixth by which the lease is shorter
covers that, if the time-out is six ticks or more; by default it is nine. Times are taken from a
clock that goes on while the machine sleeps.

Once lost, a session stays lost: no further connection is opened for it.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.protocol.states import KazooState

from tidelog.coordination.kazoo_client import SessionClient

logger = logging.getLogger(__name__)

HEARTBEATS_PER_TIMEOUT = 12
LEASE_SHARE = 5 / 6
SILENCE_SHARE = 1 / 3
# How long `close` waits for a connection over which to say goodbye.
CLOSE_PATIENCE_S = 2.0

Callback = Callable[[], None]
"""Something to be run on the event loop."""

# Goes on while the machine sleeps: on Linux the first does, elsewhere the second.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)


class LoopClosed(Exception):
    """Nobody is left to answer to: the event loop of the session is closed."""


class ZooKeeperSession:
    """Runs one session from joining to its end; what it has to say goes through `post`.

    `post` runs a callback on the event loop and raises LoopClosed if that is closed, which ends
    the session; None asks only that. `joined` is posted once the session is there and has a lease,
    `connected` after each time `connection_number` has grown, `ended` as the last thing.
    """

    def __init__(
        self,
        servers: str,
        *,
        session_timeout_ms: int,
        post: Callable[[Callback | None], None],
        connected: Callback,
        joined: Callback,
        ended: Callback,
    ) -> None:
        self.client = SessionClient(servers, session_timeout_ms=session_timeout_ms)
        self.client.add_listener(self._on_state)
        self.session_id = 0
        self.connection_number = 0
        self._post = post
        self._connected = connected
        self._joined = joined
        self._ended = ended
        self._lease_end_s: float | None = None
        self._why_lost: str | None = None
        self._is_closing = False
        self._silent_since_s: float | None = None
        self._is_connected = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="session-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the session; `ended` is posted when it has."""
        self._is_closing = True
        self._wake.set()

    def is_over(self) -> bool:
        """Whether nothing may be assumed any more. Once it is true it stays so."""
        if self._is_closing or self._why_lost is not None:
            return True
        if self._lease_end_s is not None and _now_s() >= self._lease_end_s:
            self._lose("no ZooKeeper server has answered for too long")
            return True
        return False

    def is_reliable(self, for_ms: int) -> bool:
        """Whether it is not over, and will not be for so long without another heartbeat."""
        return not self.is_over() and self._remaining_s() > for_ms / 1_000

    def _run(self) -> None:
        try:
            self.client.start_async()
            while not self.is_over():
                self._tend()
                self._wake.wait(self._pause_s())
                self._wake.clear()
        except LoopClosed:
            logger.debug("event loop closed under a session", extra={"session": self.session_id})
            self._is_closing = True
        finally:
            self._leave()

    def _tend(self) -> None:
        self._post(None)
        now_s = _now_s()
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s > self._timeout_s() * SILENCE_SHARE:
            self._silent_since_s = None
            self.client.session_handler.drop_connection()
        self.client.sync_async("/").rawlink(partial(self._on_heartbeat, now_s))

    def _pause_s(self) -> float:
        pause_s = self._timeout_s() / HEARTBEATS_PER_TIMEOUT
        if self._lease_end_s is None:
            return pause_s
        return max(0.0, min(pause_s, self._lease_end_s - _now_s()))

    def _timeout_s(self) -> float:
        return float(self.client.granted_timeout_ms) / 1_000

    def _on_heartbeat(self, sent_s: float, answer: Any) -> None:
        """On the connection's thread."""
        if not answer.successful():
            return
        self._silent_since_s = None
        is_first = self._lease_end_s is None
        lease_end_s = sent_s + self._timeout_s() * LEASE_SHARE
        self._lease_end_s = max(self._lease_end_s or 0.0, lease_end_s)
        if is_first:
            self._tell(self._joined)

    def _on_state(self, state: str) -> None:
        """On the connection's thread."""
        self._silent_since_s = None
        if state == KazooState.CONNECTED:
            self.session_id = self.client.session_id  # kazoo forgets it with the session.
            logger.debug("connected to ZooKeeper", extra={"session": self.session_id})
            self.connection_number += 1
            self._is_connected.set()
            self._tell(self._connected)
            self._wake.set()  # A heartbeat at once: the lease may be short.
            return
        self._is_connected.clear()
        if state == KazooState.LOST:
            self._lose("ZooKeeper has ended it")
        elif not self._is_closing:
            logger.warning("connection to ZooKeeper lost", extra={"session": self.session_id})

    def _lose(self, why: str) -> None:
        self.client.session_handler.refuse_connections()
        if self._why_lost is None and not self._is_closing:
            self._why_lost = why
        self._wake.set()

    def _tell(self, callback: Callback) -> None:
        try:
            self._post(callback)
        except LoopClosed:
            self.close()

    def _leave(self) -> None:
        if self._why_lost is not None:
            logger.warning(
                "session lost", extra={"session": self.session_id, "why": self._why_lost}
            )
            self._tell(self._ended)  # First: stopping may take as long as an attempt to connect.
        else:
            self._is_connected.wait(min(CLOSE_PATIENCE_S, self._remaining_s()))
        self.client.session_handler.refuse_connections()
        self.client.stop()
        self.client.close()
        if self._why_lost is None:
            self._tell(self._ended)

    def _remaining_s(self) -> float:
        return max(0.0, self._lease_end_s - _now_s()) if self._lease_end_s is not None else 0.0
