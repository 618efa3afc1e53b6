"""kazoo, fitted to one session and an event loop. The only module that knows its insides.

kazoo brings ZooKeeper's protocol, its reconnects and its watches. As it comes it would also

    begin a new session once the old one has expired, and do there what was asked of the old one:
        after `refuse_connections` no further connection is opened;
    make its caller wait when a few hundred requests are waiting to be sent: `WakePipe` does not;
    spend a whole session time-out on one server that does not answer: attempts are cut short;
    keep to itself which session time-out the server has granted: `granted_timeout_ms` tells;
    run callbacks on two more threads: here they run on the connection's, and must not wait.
"""

import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry

RECONNECT_DELAY_MIN_S = 0.05
RECONNECT_DELAY_MAX_S = 1.0

# kazoo tells of every attempt to connect; what matters of that is said by the session.
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.ERROR)


class WakePipe:
    """Both ends of kazoo's socket pair: readable as long as more was sent than received.

    kazoo sends a byte for every request. A real pair is full after some hundred of them, and then
    whoever sends waits; this one counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._reader, self._writer = os.pipe()
        self._is_closed = False

    def fileno(self) -> int:
        return self._reader

    def send(self, data: bytes) -> int:
        with self._lock:
            if self._is_closed:
                raise BrokenPipeError
            if self._count == 0:
                os.write(self._writer, b"\0")
            self._count += len(data)
        return len(data)

    def recv(self, size_bytes: int) -> bytes:
        with self._lock:
            received = min(size_bytes, self._count)
            self._count -= received
            if received and self._count == 0:
                os.read(self._reader, 1)
        return bytes(received)

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._reader)
                os.close(self._writer)


class SessionHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """What kazoo knows of threads and sockets."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._socket: socket.socket | None = None
        self._is_refusing = False

    def refuse_connections(self) -> None:
        """From now on no server is reached; a connection that there is stays."""
        self._is_refusing = True

    def drop_connection(self) -> None:
        """Give the present connection up, as if the server had closed it."""
        if self._socket is not None:
            with suppress(OSError):  # Closed already.
                self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def running(self) -> bool:
        return False  # No thread runs callbacks, so kazoo runs them where they arise.

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _failing: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # kazoo's own makes an epoll object for each of the four times it is called per request.
        poll = select.poll()
        for each in readers:
            poll.register(each, select.POLLIN)
        for each in writers:
            poll.register(each, select.POLLOUT)
        ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1_000)}
        return (
            [each for each in readers if each.fileno() in ready],
            [each for each in writers if each.fileno() in ready],
            [],
        )

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> socket.socket:
        if self._is_refusing:
            raise ConnectionRefusedError
        timeout = min(timeout, self._connect_timeout_s)
        connection: socket.socket = super().create_connection(
            *arguments, timeout=timeout, **options
        )
        self._socket = connection
        return connection

    def create_socket_pair(self) -> tuple[WakePipe, WakePipe]:
        pipe = WakePipe()
        return pipe, pipe

    def spawn(
        self, function: Callable[..., None], *arguments: Any, **options: Any
    ) -> threading.Thread:
        thread = threading.Thread(
            target=function, args=arguments, kwargs=options, name="zookeeper", daemon=True
        )
        thread.start()
        return thread


class SessionClient(KazooClient):  # type: ignore[misc]
    """A KazooClient that is one session."""

    def __init__(self, servers: str, *, session_timeout_ms: int) -> None:
        server_count = servers.count(",") + 1
        self.session_handler = SessionHandler(session_timeout_ms / 1_000 / (2 * server_count))
        self.granted_timeout_ms = session_timeout_ms
        super().__init__(
            hosts=servers,
            timeout=session_timeout_ms / 1_000,
            handler=self.session_handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_DELAY_MIN_S,
                max_delay=min(RECONNECT_DELAY_MAX_S, session_timeout_ms / 1_000 / 10),
                sleep_func=self.session_handler.sleep_func,
            ),
            logger=_kazoo_logger,
        )
        self._connection = _Connection(self, self._conn_retry.copy(), logger=self.logger)

    @property
    def session_id(self) -> int:
        """Of the session that is connected or was last; 0 if none has been yet."""
        return self._session_id or 0

    @property
    def credentials(self) -> tuple[int, bytes]:
        """The id and the password of the session."""
        return self.session_id, self._session_passwd


class _Connection(ConnectionHandler):  # type: ignore[misc]
    def _connect(self, host: str, host_ip: str, port: int) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(host, host_ip, port)
        # kazoo waits for two thirds of the session time-out before it gives a server up.
        self.client.granted_timeout_ms = round(read_timeout_ms * 3 / 2)
        return read_timeout_ms, connect_timeout_ms
