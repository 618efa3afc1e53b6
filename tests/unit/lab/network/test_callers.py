"""Whose socket a connection is, by what the kernel says."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tidelog.lab.network.callers import Callers, Processes, known_processes
from tidelog.lab.network.parties import CLIENTS, Party, broker_party
from tidelog.lab.network.socket_inodes import Caller, inodes_by_tables
from tidelog.lab.processes import ProcessIdentity, identify
from tidelog.lab.state import BrokerState, write_state

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
ENTRY = "{:4}: {} {} 01 00000000:00000000 00:00000000 00000000  1000        0 {} 1 0000 20 4 30\n"
LISTENER = "0100007F:2EE1"  # 127.0.0.1:12001, on a machine with its bytes in the usual order.
MAPPED = "0000000000000000FFFF00000100007F"


def caller(port: int) -> Caller:
    return Caller("127.0.0.1", port, "127.0.0.1", 12_001)


class FakeProc:
    """A folder like /proc: tables of sockets, and processes that have some of them open."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir()
        self.tables("", "")

    def tables(self, tcp: str, tcp6: str) -> None:
        (self.root / "net" / "tcp").write_text(HEADER + tcp, encoding="ascii")
        (self.root / "net" / "tcp6").write_text(HEADER + tcp6, encoding="ascii")

    def process(self, pid: int, opened: Sequence[str]) -> None:
        folder = self.root / str(pid) / "fd"
        folder.mkdir(parents=True)
        for descriptor, what in enumerate(opened):
            (folder / str(descriptor)).symlink_to(what)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.tables(
        ENTRY.format(0, LISTENER, "00000000:0000", 77)
        + ENTRY.format(1, "0100007F:9C40", "0100007F:2EE2", 99)  # To another listener.
        + ENTRY.format(2, "0100007F:9C40", LISTENER, 100)
        + ENTRY.format(3, LISTENER, "0100007F:9C40", 98)  # Our own end.
        + ENTRY.format(4, "0100007F:9C42", LISTENER, 0),
        ENTRY.format(0, f"{MAPPED}:9C41", f"{MAPPED}:2EE1", 101),
    )
    fake.process(11, ["/dev/null", "socket:[100]", "pipe:[101]", "socket:[7]"])
    fake.process(12, ["socket:[101]", "anon_inode:[eventpoll]"])
    return fake


KNOWN: Processes = {
    broker_party(1): ProcessIdentity(11, "then"),
    broker_party(2): ProcessIdentity(12, "then"),
    broker_party(3): ProcessIdentity(13, "ended meanwhile"),
}


def parties(proc: FakeProc, *ports: int) -> list[Party]:
    tables = partial(inodes_by_tables, proc.root)
    return Callers(lambda: KNOWN, tables, proc.root).identify([caller(port) for port in ports])


def test_caller_is_who_has_its_socket_open(proc: FakeProc) -> None:
    assert parties(proc, 40_000) == [broker_party(1)]


def test_caller_with_an_ipv6_socket_is_found_as_well(proc: FakeProc) -> None:
    assert parties(proc, 40_001) == [broker_party(2)]


def test_many_callers_are_told_in_their_order(proc: FakeProc) -> None:
    assert parties(proc, 40_001, 40_005, 40_000, 40_001) == [
        broker_party(2),
        CLIENTS,
        broker_party(1),
        broker_party(2),
    ]
    assert parties(proc) == []


def test_caller_whose_socket_nobody_has_is_a_client(proc: FakeProc) -> None:
    assert parties(proc, 40_002) == [CLIENTS]  # It closed it at once.


def test_caller_that_the_kernel_does_not_know_is_a_client(proc: FakeProc) -> None:
    assert parties(proc, 40_003) == [CLIENTS]


def test_without_proc_everybody_is_a_client(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    nowhere = Callers(lambda: KNOWN, partial(inodes_by_tables, proc), proc)
    assert nowhere.identify([caller(40_000), caller(40_001)]) == [CLIENTS, CLIENTS]


def test_broker_that_is_written_down_meanwhile_is_found(proc: FakeProc) -> None:
    """It was started again with another process id while the old state was read."""
    said: list[Processes] = [
        {broker_party(1): ProcessIdentity(13, "before")},
        {broker_party(1): ProcessIdentity(11, "then")},
    ]
    callers = Callers(
        lambda: said.pop(0) if len(said) > 1 else said[0],
        partial(inodes_by_tables, proc.root),
        proc.root,
    )
    assert callers.identify([caller(40_000)]) == [broker_party(1)]


def test_known_are_the_brokers_that_run(tmp_path: Path) -> None:
    me = identify(os.getpid())
    assert me is not None

    def broker(broker_id: int, start_mark: str) -> BrokerState:
        return BrokerState(
            id=broker_id, host="", port=1, pid=me.pid, start_mark=start_mark, started_ms=0
        )

    state_file = tmp_path / "cluster.json"
    assert known_processes(state_file) == {}
    write_state(state_file, (broker(1, me.start_mark), broker(2, "of another one")))
    assert known_processes(state_file) == {broker_party(1): me}
    state_file.write_text("damaged", encoding="utf-8")
    assert known_processes(state_file) == {}
