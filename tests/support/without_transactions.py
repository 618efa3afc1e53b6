"""A broker that has no transactions, as old ones and some of other makes have none.

A broker of ours behind a proxy that leaves the APIs of transactions out of what it says it serves.
Clients are told of the proxy alone, and go by what they are told.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tidelog.client.frames import receive_frame
from tidelog.wire.api import ApiKey
from tidelog.wire.api_versions import decode_api_versions_response, encode_api_versions_response

HOST: Final = "127.0.0.1"
LEFT_OUT: Final = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")
_CORRELATION_ID: Final = struct.Struct(">i")


class WithoutTransactions:
    """The broker and what is in front of it."""

    def __init__(self, folder: Path) -> None:
        self.bootstrap = f"{HOST}:{free_port()}"
        advertised = {"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}
        self._broker = BrokerProcess(folder, advertised)
        self._listening: socket.socket | None = None
        self._relays: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._broker.start()
        host, port = self.bootstrap.split(":")
        self._listening = socket.create_server((host, int(port)))
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._broker.kill()  # Which ends every connection.
        if self._listening is not None:
            with suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
        for each in self._relays:
            each.join()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            relay = threading.Thread(target=self._relay, args=(client,), daemon=True)
            self._relays.append(relay)
            relay.start()

    def _relay(self, client: socket.socket) -> None:
        with (
            client,
            suppress(OSError),
            socket.create_connection((HOST, self._broker.port)) as broker,
        ):
            _Relay(client, broker).run()


class _Relay:
    """One connection, in both directions."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self._client = client
        self._broker = broker
        self._asked_versions: dict[int, int] = {}
        """The version of each ApiVersions request that was not answered, by its correlation id."""

    def run(self) -> None:
        """Until either side closes it."""
        answers = threading.Thread(target=self._until_closed, args=(self._answers,), daemon=True)
        answers.start()
        self._until_closed(self._requests)
        answers.join()

    def _until_closed(self, relay: Callable[[], None]) -> None:
        try:
            with suppress(OSError):
                while True:
                    relay()
        finally:
            for each in (self._client, self._broker):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _requests(self) -> None:
        request = receive_frame(self._client)
        key, version, correlation_id = _REQUEST.unpack_from(request)
        if key == ApiKey.API_VERSIONS:
            self._asked_versions[correlation_id] = version
        self._broker.sendall(_SIZE.pack(len(request)) + request)

    def _answers(self) -> None:
        answer = receive_frame(self._broker)
        (correlation_id,) = _CORRELATION_ID.unpack_from(answer)
        version = self._asked_versions.pop(correlation_id, None)
        if version is None:
            self._client.sendall(_SIZE.pack(len(answer)) + answer)
            return
        told = decode_api_versions_response(answer, _CORRELATION_ID.size, version)
        left = {key: each for key, each in told.api_versions.items() if key not in LEFT_OUT}
        told = told._replace(api_versions=left)
        self._client.sendall(encode_api_versions_response(version, correlation_id, told))
