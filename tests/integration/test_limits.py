"""Limits on connections, and what a stopping broker still does (O5).

A connection over a limit is closed at once and logged once; those that are there work on.
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, numbered_records, read_partition, send
from tests.support.command_line import tidelog
from tests.support.server_process import wait_until

TIMEOUT_S = 10.0
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@contextmanager
def connected(broker: BrokerProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as connection:
        yield connection


def is_served(connection: socket.socket) -> bool:
    """Whether the broker answers on this connection."""
    try:
        connection.sendall(API_VERSIONS)
        return connection.recv(4) != b""
    except ConnectionError:
        return False


def is_hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("setting", ["max.connections", "max.connections.per.ip"])
def test_connections_over_the_limit_are_closed_at_once(
    start_broker: StartBroker, setting: str
) -> None:
    broker = start_broker({setting: "3"})
    with ExitStack() as stack:
        admitted = [stack.enter_context(connected(broker)) for _ in range(3)]
        assert all(map(is_served, admitted))
        with connected(broker) as refused:
            assert is_hung_up(refused)
        assert all(is_served(connection) for connection in admitted[1:])
        # One leaves, one may come.
        admitted[0].close()
        wait_until(lambda: _can_connect(broker), within_s=TIMEOUT_S, what="a place is free")
    lines = [line for line in broker.log_text().splitlines() if f"{setting}=3" in line]
    assert lines
    assert all("connection refused" in line for line in lines)


def test_a_limit_that_was_set_while_it_ran_holds_after_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker({})
    limit = "max.connections.per.ip=3"
    done = tidelog("configs", "alter", "--cluster", "--set", limit, "--bootstrap", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    broker.restart()
    with ExitStack() as stack:
        admitted = [stack.enter_context(connected(broker)) for _ in range(3)]
        assert all(map(is_served, admitted))
        assert not _can_connect(broker)


def _can_connect(broker: BrokerProcess) -> bool:
    with connected(broker) as connection:
        return is_served(connection)


def test_an_address_may_have_a_limit_of_its_own(start_broker: StartBroker) -> None:
    broker = start_broker(
        {
            "max.connections.per.ip": "1",
            "max.connections.per.ip.overrides": "127.0.0.1:2,10.0.0.9:0",
        }
    )
    with connected(broker) as first, connected(broker) as second:
        assert is_served(first)
        assert is_served(second)
        with connected(broker) as third:
            assert is_hung_up(third)


def test_idle_connections_are_closed_and_busy_ones_are_not(start_broker: StartBroker) -> None:
    broker = start_broker({"connections.max.idle.ms": "1500"})
    with connected(broker) as idle, connected(broker) as busy:
        assert is_served(idle)
        idle.recv(65_536)
        deadline = time.monotonic() + TIMEOUT_S
        idle.settimeout(0.2)
        while time.monotonic() < deadline:
            assert is_served(busy)
            busy.recv(65_536)
            try:
                assert idle.recv(1) == b""
                break
            except TimeoutError:
                continue
        else:
            pytest.fail("the idle connection was not closed")
    assert "idle connection closed" in broker.log_text()


def test_socket_buffers_are_bounded_when_asked(start_broker: StartBroker) -> None:
    """A client that reads nothing of a large answer gets what the small buffer holds, no more."""
    unread = {}
    for size_bytes in ("-1", "16384"):
        broker = start_broker({"socket.send.buffer.bytes": size_bytes})
        create_topic(broker.bootstrap, "big", partition_count=1, config={})
        records = numbered_records(4_000, value_size_bytes=1_000, seed="big")
        send(broker.bootstrap, "big", records, partition=0, settings={"linger.ms": 20})
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", broker.port))
            body = struct.pack(">hhih", 1, 4, 9, -1)
            body += struct.pack(">iiiib", -1, 0, 1, 50_000_000, 0)
            body += struct.pack(">ih", 1, 3) + b"big" + struct.pack(">iiqi", 1, 0, 0, 50_000_000)
            client.sendall(struct.pack(">i", len(body)) + body)
            assert client.recv(1)
            unread[size_bytes] = _in_flight_bytes(broker.port)
    assert unread["16384"] < unread["-1"]


def _in_flight_bytes(port: int) -> int:
    """What the broker's kernel holds for a client that does not read; from /proc/net/tcp."""
    lines = Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
    queued = [
        int(line.split()[4].split(":")[0], 16)
        for line in lines
        if line.split()[1].endswith(f":{port:04X}")
    ]
    return max(queued)


def test_a_stopping_broker_lets_answers_leave_and_marks_its_folder(
    start_broker: StartBroker,
) -> None:
    """A fetch that is parked is answered or let go; nothing acknowledged needs recovery."""
    broker = start_broker({})
    create_topic(broker.bootstrap, "kept", partition_count=1, config={})
    records = numbered_records(500, value_size_bytes=200, seed="kept")
    send(broker.bootstrap, "kept", records, partition=0, settings={"acks": "all"})
    with connected(broker) as waiting:
        # A Fetch v4 at the end of the log, which would wait for half a minute.
        body = struct.pack(">hhih", 1, 4, 9, -1)
        body += struct.pack(">iiiib", -1, 30_000, 1, 1_000_000, 0)
        body += struct.pack(">ih", 1, 4) + b"kept" + struct.pack(">iiqi", 1, 0, 500, 1_000_000)
        waiting.sendall(struct.pack(">i", len(body)) + body)
        began_s = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began_s < 15
        assert is_hung_up(waiting) or waiting.recv(65_536) is not None
    assert (broker.data_folder / ".kafka_cleanshutdown").exists()
    broker.start()
    assert not (broker.data_folder / ".kafka_cleanshutdown").exists()
    assert "recovered" not in broker.log_text_of_this_start()
    assert len(read_partition(broker.bootstrap, "kept", 0)) == 500
