"""The network between processes of a cluster: cut, slowed down and healed (B3).

Nothing is waited for by sleeping. That something does not arrive is looked at after something else
has, that was sent later through the same process.
"""

import asyncio
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, Self

import pytest
import uvloop

from tests.support.command_line import environment
from tests.support.ports import free_port
from tests.support.server_process import wait_until
from tidelog.lab.errors import PortInUse
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.callers import PROC
from tidelog.lab.network.errors import CommandRefused, NetworkRunsAlready, NoNetwork
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import CLIENTS, ZOOKEEPER, Party, broker_party
from tidelog.lab.network.proxy import Proxy
from tidelog.lab.network.routes import Route
from tidelog.lab.network.socket_inodes import (
    Caller,
    best_way,
    inodes_by_diag,
    inodes_by_tables,
)
from tidelog.lab.network.status import PairStatus
from tidelog.lab.processes import identify, is_running, wait_for_end
from tidelog.lab.state import BrokerState, write_state

HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 20.0
LARGE_BYTES: Final = 10 * 1024 * 1024
ONE, TWO, THREE = (broker_party(number) for number in (1, 2, 3))


class Lab:
    """A network that leads to broker 1 and broker 2, both of which are this test."""

    def __init__(self, root: Path, held: ExitStack) -> None:
        self.folder = ClusterFolder(root)
        self.held = held
        self.servers = {party: self._listen() for party in (ONE, TWO)}
        self.ports = {party: free_port() for party in self.servers}
        self.network = held.enter_context(
            LabNetwork.start(self.folder, self.routes(), is_tied=True)
        )

    def routes(self) -> list[Route]:
        return [
            Route(
                port=self.ports[party],
                target_host=HOST,
                target_port=server.getsockname()[1],
                party=party,
            )
            for party, server in self.servers.items()
        ]

    def add(self, party: Party) -> None:
        """Have the network lead to one more, which is this test too."""
        self.servers[party] = self._listen()
        self.ports[party] = free_port()
        self.network.add_route(self.routes()[-1])

    def connect(self, party: Party = ONE) -> socket.socket:
        address = (HOST, self.ports[party])
        return self.held.enter_context(socket.create_connection(address, timeout=TIMEOUT_S))

    def accept(self, party: Party = ONE) -> socket.socket:
        accepted, _address = self.servers[party].accept()
        accepted.settimeout(TIMEOUT_S)
        return self.held.enter_context(accepted)

    def pair(self, party: Party = ONE) -> tuple[socket.socket, socket.socket]:
        """Both ends of a connection through the network."""
        return self.connect(party), self.accept(party)

    def fence(self, party: Party = TWO) -> None:
        """Return when what came to the network before was looked at."""
        near, far = self.pair(party)
        for _ in range(3):
            near.sendall(b"ping")
            assert receive(far, 4) == b"ping"
            far.sendall(b"pong")
            assert receive(near, 4) == b"pong"

    def traffic(self, caller: Party, target: Party) -> PairStatus | None:
        found = [
            pair
            for pair in self.network.status().pairs
            if (pair.caller, pair.target) == (caller, target)
        ]
        return found[0] if found else None

    def wait_waiting(self, caller: Party, target: Party) -> None:
        def waits() -> bool:
            pair = self.traffic(caller, target)
            return pair is not None and pair.waiting_count > 0

        wait_until(waits, within_s=TIMEOUT_S, what=f"a connection to {target} waits")

    def become(self, **pids: int) -> None:
        """Write down who is which broker: `broker_1=pid`."""
        states = []
        for name, pid in pids.items():
            process = identify(pid)
            assert process is not None
            states.append(
                BrokerState(
                    id=int(name.removeprefix("broker_")),
                    host=HOST,
                    port=1,
                    pid=pid,
                    start_mark=process.start_mark,
                    started_ms=0,
                )
            )
        write_state(self.folder.state_file, tuple(states))

    def _listen(self) -> socket.socket:
        server = self.held.enter_context(socket.create_server((HOST, 0), backlog=512))
        server.settimeout(TIMEOUT_S)
        return server


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as held:
        # The name of the folder is longer than that of a socket may be.
        yield Lab(tmp_path / ("cluster-" * 12), held)


def receive(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes and (more := connection.recv(size_bytes - len(data))):
        data += more
    return data


def is_silent(connection: socket.socket) -> bool:
    """Whether neither bytes nor an end have come."""
    look = select.poll()
    look.register(connection, select.POLLIN)
    return not look.poll(0)


# -- bytes ---------------------------------------------------------------------------------------


def test_bytes_pass_in_both_directions(lab: Lab) -> None:
    near, far = lab.pair()
    near.sendall(b"question")
    assert receive(far, 8) == b"question"
    far.sendall(b"answer")
    assert receive(near, 6) == b"answer"
    pair = lab.traffic(CLIENTS, ONE)
    assert pair == PairStatus(
        caller=CLIENTS, target=ONE, open_count=1, waiting_count=0, sent_bytes=8, received_bytes=6
    )


@pytest.mark.parametrize("delay_ms", [0, 20])
def test_large_transfers_arrive_as_they_were_sent(lab: Lab, delay_ms: int) -> None:
    """Both ways at once, more than any buffer takes."""
    lab.network.slow(ONE, CLIENTS, delay_ms=delay_ms)
    ends = lab.pair()
    sent = [os.urandom(LARGE_BYTES) for _ in ends]
    senders = [
        threading.Thread(target=one.sendall, args=(data,))
        for one, data in zip(ends, sent, strict=True)
    ]
    for sender in senders:
        sender.start()
    arrived: list[bytes] = []
    reader = threading.Thread(target=lambda: arrived.append(receive(ends[0], LARGE_BYTES)))
    reader.start()
    assert digest(receive(ends[1], LARGE_BYTES)) == digest(sent[0])
    reader.join()
    assert digest(arrived[0]) == digest(sent[1])
    for sender in senders:
        sender.join()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_many_connections_pass_side_by_side(lab: Lab) -> None:
    pairs = [lab.pair() for _ in range(10)]
    callers = [lab.connect() for _ in range(200)]
    for number, one in enumerate(callers):
        one.sendall(b"%6d" % number)
    accepted = [lab.accept() for _ in callers]
    assert sorted(int(receive(one, 6)) for one in accepted) == list(range(200))
    for near, far in pairs:
        near.sendall(b"still here")
        assert receive(far, 10) == b"still here"
    pair = lab.traffic(CLIENTS, ONE)
    assert pair is not None
    assert pair.open_count == 210
    for one in (*callers, *accepted):
        one.close()
    wait_until(
        lambda: (now := lab.traffic(CLIENTS, ONE)) is not None and now.open_count == 10,
        within_s=TIMEOUT_S,
        what="closed connections are forgotten",
    )


def test_connection_beyond_the_bound_is_reset() -> None:
    uvloop.run(_reach_the_bound())


async def _reach_the_bound() -> None:
    loop = asyncio.get_running_loop()
    with ExitStack() as held:
        server = held.enter_context(socket.create_server((HOST, 0)))
        route = Route(
            port=free_port(), target_host=HOST, target_port=server.getsockname()[1], party=ONE
        )
        proxy = Proxy(
            loop=loop,
            routes=[route],
            identify=lambda callers: [CLIENTS for _ in callers],
            executor=held.enter_context(ThreadPoolExecutor(1)),
            connections_max=2,
        )
        held.callback(proxy.close)
        proxy.open()
        running = loop.create_task(proxy.run())
        callers = [
            held.enter_context(socket.create_connection((HOST, route.port))) for _ in range(3)
        ]
        for one in (server, *callers):
            one.setblocking(False)
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(ConnectionResetError):
                await loop.sock_recv(callers[2], 1)
            for _ in range(2):
                accepted, _address = await loop.sock_accept(server)
                with accepted:
                    await loop.sock_sendall(accepted, b"welcome")
            assert [await loop.sock_recv(one, 7) for one in callers[:2]] == [b"welcome"] * 2
        assert proxy.refused_count == 1
        running.cancel()


# -- ends ----------------------------------------------------------------------------------------


def test_half_close_leaves_the_other_direction_open(lab: Lab) -> None:
    near, far = lab.pair()
    near.sendall(b"question")
    near.shutdown(socket.SHUT_WR)
    assert receive(far, 100) == b"question"
    far.sendall(b"answer")
    far.close()
    assert receive(near, 100) == b"answer"


def test_reset_is_passed_on_after_the_last_bytes(lab: Lab) -> None:
    near, far = lab.pair()
    far.sendall(b"farewell")
    assert receive(near, 8) == b"farewell"
    reset(far)
    with pytest.raises(ConnectionResetError):
        near.recv(1)


def test_who_writes_to_somebody_gone_is_reset(lab: Lab) -> None:
    near, far = lab.pair()
    near.shutdown(socket.SHUT_WR)
    assert far.recv(1) == b""
    near.close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        far.sendall(bytes(LARGE_BYTES))


def test_target_that_is_dead_resets_its_callers(lab: Lab) -> None:
    lab.servers[ONE].close()
    near = lab.connect()
    with pytest.raises(ConnectionResetError):
        near.recv(1)


def test_network_survives_callers_and_targets_that_reset_at_once(lab: Lab) -> None:
    for number in range(50):
        gone = lab.connect(ONE)
        near = lab.connect(TWO)
        if number % 2:
            gone.sendall(b"hello")
            near.sendall(b"hello")
        reset(gone)
        reset(lab.accept(TWO))
        with pytest.raises(ConnectionResetError):
            near.recv(1)
    lab.fence()
    wait_until(
        lambda: (now := lab.traffic(CLIENTS, ONE)) is not None and now.waiting_count == 0,
        within_s=TIMEOUT_S,
        what="every caller was seen to have gone",
    )


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


# -- cut -----------------------------------------------------------------------------------------


def test_cut_link_is_silent_and_delivers_when_it_is_healed(lab: Lab) -> None:
    near, far = lab.pair()
    near.sendall(b"0 ")
    assert receive(far, 2) == b"0 "
    lab.network.cut(CLIENTS, ONE)
    for word in (b"1 ", b"2 ", b"3 "):
        near.sendall(word)
    far.sendall(b"back")
    lab.fence()
    assert is_silent(far)
    assert is_silent(near)
    lab.network.heal(ONE, CLIENTS)
    near.sendall(b"4")
    assert receive(far, 7) == b"1 2 3 4"
    assert receive(near, 4) == b"back"


def test_transfer_that_is_cut_in_its_midst_loses_nothing(lab: Lab) -> None:
    near, far = lab.pair()
    data = os.urandom(LARGE_BYTES)
    sender = threading.Thread(target=near.sendall, args=(data,))
    sender.start()
    arrived = b""
    for _ in range(5):
        arrived += receive(far, 100_000)
        lab.network.cut(CLIENTS, ONE)
        lab.fence()
        lab.network.heal_all()
    arrived += receive(far, LARGE_BYTES - len(arrived))
    sender.join()
    assert digest(arrived) == digest(data)


def test_ends_are_not_passed_on_while_the_link_is_cut(lab: Lab) -> None:
    pairs = [lab.pair() for _ in range(3)]
    (near, far), (_, reset_far), (reset_near, _) = pairs
    lab.network.cut(CLIENTS, ONE)
    near.sendall(b"farewell")
    near.close()
    reset(pairs[1][0])
    reset(pairs[2][1])
    lab.fence()
    assert [is_silent(one) for one in (far, reset_far, reset_near)] == [True] * 3
    lab.network.heal_all()
    assert receive(far, 100) == b"farewell"
    for one in (reset_far, reset_near):
        with pytest.raises(ConnectionResetError):
            one.recv(1)


def test_connection_over_a_cut_link_is_made_when_it_is_healed(lab: Lab) -> None:
    lab.network.cut(CLIENTS, ONE)
    near = lab.connect()
    near.sendall(b"hello")
    lab.wait_waiting(CLIENTS, ONE)
    lab.fence()
    lab.servers[ONE].setblocking(False)
    with pytest.raises(BlockingIOError):
        lab.servers[ONE].accept()
    lab.servers[ONE].settimeout(TIMEOUT_S)
    lab.network.heal_all()
    assert receive(lab.accept(), 5) == b"hello"


def test_dead_target_is_silent_too_while_the_link_is_cut(lab: Lab) -> None:
    lab.network.cut(CLIENTS, ONE)
    lab.servers[ONE].close()
    near = lab.connect()
    lab.wait_waiting(CLIENTS, ONE)
    lab.fence()
    assert is_silent(near)
    lab.network.heal_all()
    with pytest.raises(ConnectionResetError):
        near.recv(1)


# -- who calls -----------------------------------------------------------------------------------

_PEER: Final = """
import json, socket, sys
one = None
for line in sys.stdin:
    what, value = json.loads(line)
    said = None
    if what == "connect":
        one = socket.create_connection(("127.0.0.1", value), timeout=20)
    elif what == "send":
        one.sendall(value.encode())
    else:
        said = one.recv(value).decode()
    print(json.dumps(said), flush=True)
"""


class Peer:
    """Another process, that does with a connection what it is told."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._questions: IO[bytes] = self._child.stdin
        self._answers: IO[bytes] = self._child.stdout
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._questions.close()
        self._child.wait(TIMEOUT_S)
        self._answers.close()

    def do(self, what: str, value: object) -> object:
        self._questions.write(json.dumps([what, value]).encode() + b"\n")
        line = self._answers.readline()
        assert line, f"the other process could not {what}"
        return json.loads(line)


def test_link_is_cut_only_between_those_that_are_named(lab: Lab) -> None:
    """Two brokers and a client call broker 1, from one address; broker 2 is cut from it."""
    two, three = (lab.held.enter_context(Peer()) for _ in range(2))
    lab.become(broker_2=two.pid, broker_3=three.pid)
    for peer, name in ((two, "2"), (three, "3")):
        peer.do("connect", lab.ports[ONE])
        peer.do("send", name)
    accepted = [lab.accept() for _ in range(2)]
    far = {receive(one, 1): one for one in accepted}
    near = lab.pair()
    callers = {pair.caller for pair in lab.network.status().pairs}
    assert callers == {TWO, THREE, CLIENTS}

    lab.network.cut(ONE, TWO)
    two.do("send", "from two")
    three.do("send", "from three")
    near[0].sendall(b"from a client")
    assert receive(near[1], 13) == b"from a client"
    assert receive(far[b"3"], 10) == b"from three"
    far[b"3"].sendall(b"answer")
    assert three.do("receive", 6) == "answer"
    lab.fence()
    assert is_silent(far[b"2"])

    lab.network.heal_all()
    assert receive(far[b"2"], 8) == b"from two"


def test_broker_that_was_started_again_is_known_by_its_new_process(lab: Lab) -> None:
    with Peer() as before:
        lab.become(broker_3=before.pid)
        before.do("connect", lab.ports[ONE])
        lab.accept()
    with Peer() as after:
        lab.become(broker_3=after.pid)
        lab.network.cut(THREE, ONE)
        after.do("connect", lab.ports[ONE])
        lab.wait_waiting(THREE, ONE)
        lab.network.heal_all()
        lab.accept()
    assert {pair.caller for pair in lab.network.status().pairs} == {THREE}


def test_caller_with_an_ipv6_socket_is_known(lab: Lab) -> None:
    """As those of a JVM are: ::ffff:127.0.0.1."""
    lab.become(broker_3=os.getpid())
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as near:
        near.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        near.connect((f"::ffff:{HOST}", lab.ports[ONE]))
        near.sendall(b"hello")
        assert receive(lab.accept(), 5) == b"hello"
    assert [pair.caller for pair in lab.network.status().pairs] == [THREE]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_both_ways_to_ask_the_kernel_find_the_same_socket(family: socket.AddressFamily) -> None:
    mapped = "" if family == socket.AF_INET else "::ffff:"
    with socket.create_server((HOST, 0)) as server, socket.socket(family) as near:
        near.connect((f"{mapped}{HOST}", server.getsockname()[1]))
        caller = Caller(HOST, near.getsockname()[1], *server.getsockname())
        gone = Caller(HOST, 1, *server.getsockname())
        expected = {caller: os.fstat(near.fileno()).st_ino}
        assert inodes_by_tables(PROC, [caller, gone]) == expected
        if (ask := best_way(PROC)) is inodes_by_diag:  # Where Linux was built with it.
            assert ask([caller, gone]) == expected


# -- slow ----------------------------------------------------------------------------------------

DELAY_MS: Final = 60


def test_slow_link_delays_each_direction(lab: Lab) -> None:
    near, far = lab.pair()
    lab.network.slow(ONE, CLIENTS, delay_ms=DELAY_MS)
    for word in (b"one", b"two"):
        started = time.monotonic()
        near.sendall(word)
        assert receive(far, 3) == word
        assert time.monotonic() - started >= DELAY_MS / 1_000
        started = time.monotonic()
        far.sendall(word)
        assert receive(near, 3) == word
        assert time.monotonic() - started >= DELAY_MS / 1_000
    near.close()
    assert receive(far, 1) == b""


def test_slow_link_delivers_in_order_what_was_sent_in_the_meantime(lab: Lab) -> None:
    near, far = lab.pair()
    lab.network.slow(ONE, CLIENTS, delay_ms=DELAY_MS)
    for number in range(500):
        near.sendall(b"%4d" % number)
    near.shutdown(socket.SHUT_WR)
    received = receive(far, 10_000)
    assert [int(received[at : at + 4]) for at in range(0, len(received), 4)] == list(range(500))


def test_healed_link_delivers_at_once_what_was_late(lab: Lab) -> None:
    near, far = lab.pair()
    lab.network.slow(ONE, CLIENTS, delay_ms=60_000)
    near.sendall(b"late")
    lab.fence()
    assert is_silent(far)
    lab.network.heal_all()
    assert receive(far, 4) == b"late"


# -- the process ---------------------------------------------------------------------------------


def test_network_is_steered_by_another_process(lab: Lab) -> None:
    script = f"""
from pathlib import Path
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import CLIENTS, broker_party
network = LabNetwork.find(ClusterFolder(Path({str(lab.folder.root)!r})))
network.cut(CLIENTS, broker_party(1))
network.slow(broker_party(2), broker_party(1), delay_ms=7)
"""
    subprocess.run([sys.executable, "-P", "-c", script], check=True, env=environment())
    links = [(link.a, link.b, link.is_cut, link.delay_ms) for link in lab.network.status().links]
    assert links == [(ONE, TWO, False, 7), (ONE, CLIENTS, True, 0)]
    LabNetwork.find(lab.folder).heal_between([ONE], [CLIENTS, TWO])
    assert lab.network.status().links == ()


def test_cut_of_what_does_not_exist_is_refused(lab: Lab) -> None:
    refused: list[tuple[list[Party], list[Party], str]] = [
        ([broker_party(9)], [ONE], "there is no broker 9 here, only broker 1, broker 2, clients"),
        ([ONE, ZOOKEEPER], [TWO], "there is no zookeeper here"),
        ([Party("me")], [ONE], "'me' is nobody's name"),
        ([ONE], [ONE, TWO], "both sides"),
        ([], [ONE], "list of parties"),
    ]
    for these, those, reason in refused:
        with pytest.raises(CommandRefused, match=reason):
            lab.network.cut_between(these, those)
    lab.become(broker_3=os.getpid())
    with pytest.raises(CommandRefused, match="does not come by here"):
        lab.network.cut(THREE, CLIENTS)
    assert lab.network.status().links == ()


def test_hostile_input_is_answered_with_an_error_and_harms_nothing(lab: Lab) -> None:
    near, far = lab.pair()
    lines = [
        b"\x00\xff\xfe",
        b"GET / HTTP/1.1",
        b"[" * 60_000,
        b'{"command": "cut"}',
        b'{"command": "slow", "these": ["broker 1"], "those": ["clients"], "delay_ms": 1e99}',
        b'{"command": "cut", "these": [["broker 1"]], "those": [{}]}',
    ]
    with control_connection(lab) as control, control.makefile("rb") as answers:
        for line in lines:
            control.sendall(line + b"\n")
            assert "error" in json.loads(answers.readline())
        control.sendall(b'{"command": "heal"}\n{"comm')
        assert json.loads(answers.readline()) == {"ok": True}
        control.sendall(b'and": "heal"}\n')
        assert json.loads(answers.readline()) == {"ok": True}
    with control_connection(lab) as control, control.makefile("rb") as answers:
        control.sendall(b"x" * 200_000)
        assert json.loads(answers.readline()) == {"error": "the line is too long"}
    idle = [lab.held.enter_context(control_connection(lab)) for _ in range(64)]
    with control_connection(lab) as control, control.makefile("rb") as answers:
        assert "error" in json.loads(answers.readline())
    for one in idle:
        one.close()
    near.sendall(b"question")
    assert receive(far, 8) == b"question"
    wait_until(lambda: steers(lab), within_s=TIMEOUT_S, what="it can be steered again")


def steers(lab: Lab) -> bool:
    try:
        return lab.network.status().links == ()
    except CommandRefused:
        return False  # The others were not seen to have gone yet.


def control_connection(lab: Lab) -> socket.socket:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    control.settimeout(TIMEOUT_S)
    folder = os.open(lab.folder.root, os.O_RDONLY)
    try:
        control.connect(f"/proc/self/fd/{folder}/network.sock")
    finally:
        os.close(folder)
    return control


def test_party_that_is_added_is_led_to_and_can_be_cut_off(lab: Lab) -> None:
    lab.add(THREE)
    near, far = lab.pair(THREE)
    near.sendall(b"hello")
    assert receive(far, 5) == b"hello"
    lab.network.cut(CLIENTS, THREE)
    near.sendall(b"later")
    lab.fence()
    assert is_silent(far)
    lab.network.heal_all()
    assert receive(far, 5) == b"later"


def test_party_that_is_removed_is_led_to_no_more(lab: Lab) -> None:
    lab.add(THREE)
    near, _far = lab.pair(THREE)
    lab.network.cut(ONE, THREE)
    lab.network.remove_routes(THREE)
    with pytest.raises(ConnectionResetError):
        near.recv(1)
    with pytest.raises(ConnectionRefusedError):
        lab.connect(THREE)
    status = lab.network.status()
    assert [route.party for route in status.routes] == [ONE, TWO]
    assert status.links == ()
    lab.add(THREE)
    lab.pair(THREE)


def test_route_that_cannot_be_is_refused(lab: Lab) -> None:
    taken = Route(port=lab.ports[ONE], target_host=HOST, target_port=1, party=THREE)
    with pytest.raises(CommandRefused, match=f"port {taken.port} of 127.0.0.1 is in use"):
        lab.network.add_route(taken)
    named = Route(port=free_port(), target_host="localhost", target_port=1, party=THREE)
    with pytest.raises(CommandRefused, match="is no host"):
        lab.network.add_route(named)
    assert [route.party for route in lab.network.status().routes] == [ONE, TWO]


def test_folder_has_one_network_only(lab: Lab) -> None:
    with pytest.raises(NetworkRunsAlready):
        LabNetwork.start(lab.folder, lab.routes(), is_tied=True)
    near, far = lab.pair()
    near.sendall(b"hello")
    assert receive(far, 5) == b"hello"


def test_port_in_use_is_refused_by_name(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(PortInUse, match=str(lab.ports[ONE])):
        LabNetwork.start(ClusterFolder(tmp_path / "other"), lab.routes(), is_tied=True)


def test_network_that_has_ended_is_not_found(lab: Lab) -> None:
    near, _far = lab.pair()
    lab.network.stop()
    assert not is_running(lab.network.process)
    with pytest.raises(ConnectionResetError):
        near.recv(1)
    with pytest.raises(NoNetwork, match="no network runs in"):
        LabNetwork.find(lab.folder)
    lab.network.stop()


def test_network_that_was_killed_is_not_found_and_may_be_followed(lab: Lab) -> None:
    os.kill(lab.network.process.pid, signal.SIGKILL)
    assert wait_for_end(lab.network.process, timeout_s=TIMEOUT_S)
    with pytest.raises(NoNetwork):
        LabNetwork.find(lab.folder)
    with LabNetwork.start(lab.folder, lab.routes(), is_tied=True):
        near, far = lab.pair()
        near.sendall(b"hello")
        assert receive(far, 5) == b"hello"


@pytest.mark.parametrize("is_tied", [True, False])
def test_network_ends_with_whoever_started_it_if_it_is_tied(tmp_path: Path, is_tied: bool) -> None:
    folder = ClusterFolder(tmp_path)
    script = f"""
import os, signal
from pathlib import Path
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import broker_party
from tidelog.lab.network.routes import Route
route = Route(port={free_port()}, target_host="{HOST}", target_port=1, party=broker_party(1))
network = LabNetwork.start(ClusterFolder(Path({str(tmp_path)!r})), [route], is_tied={is_tied})
print(network.process.pid, network.process.start_mark, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    started = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, check=False, env=environment()
    )
    assert started.returncode == -signal.SIGKILL, started.stderr
    if is_tied:
        wait_until(
            lambda: identify(int(started.stdout.split()[0])) is None,
            within_s=TIMEOUT_S,
            what="the network has ended",
        )
        with pytest.raises(NoNetwork):
            LabNetwork.find(folder)
    else:
        network = LabNetwork.find(folder)
        os.kill(network.process.pid, signal.SIGTERM)
        assert wait_for_end(network.process, timeout_s=TIMEOUT_S)
        assert not (tmp_path / "network.sock").exists()
        assert (tmp_path / "network.log").read_text("utf-8") == ""
