"""Whose connection is it? The kernel knows, and on Linux it tells.

    accepted from 127.0.0.1:40312 ──▶ /proc/net/tcp, tcp6: the socket at the other end is inode 7151
                                  ──▶ /proc/<pid>/fd/*: broker 2 has socket:[7151] open

Asked are only the processes of the cluster, which its state file names. A caller that none of them
is, that has gone meanwhile, or that lives on a machine without /proc is one of the `clients`.

A JVM's sockets are IPv6 ones with IPv4 addresses in them, hence tcp6. Reading the kernel's table
takes milliseconds and a broker has thousands of files open, so whoever has many connections to ask
about asks once for all. Nothing is remembered: inodes, descriptors and process ids are used again.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from tidelog.lab.errors import LabError
from tidelog.lab.network.parties import CLIENTS, Party, broker_party
from tidelog.lab.processes import ProcessIdentity, is_running
from tidelog.lab.state import read_state

PROC: Final = Path("/proc")
# While sockets come and go, one that stays can be left out of the kernel's table.
_LOOKS_MAX: Final = 3
_TABLES: Final = ("net/tcp", "net/tcp6")
_MAPPED_PREFIX: Final = f"{0:016X}{int.from_bytes(bytes([0, 0, 255, 255]), sys.byteorder):08X}"
_SOCKET: Final = re.compile(r"socket:\[([0-9]+)\]")
_INODE_FIELD: Final = 6
"""Behind the two addresses: state, queues, timer, retransmits, uid, timeout, inode."""
_NOBODYS: Final = 0
"""The inode of a socket that no process has open any more."""

Processes = Mapping[Party, ProcessIdentity]


@dataclass(frozen=True, slots=True)
class Caller:
    """The two ends of an accepted connection, IPv4 addresses as text."""

    host: str
    port: int
    listen_host: str
    listen_port: int


class Callers:
    """Tells parties by the sockets they have open. Blocks, for milliseconds."""

    def __init__(self, known: Callable[[], Processes], proc: Path) -> None:
        self._known = known
        self._proc = proc

    def identify(self, callers: Sequence[Caller]) -> list[Party]:
        """The party of each, in their order."""
        inodes = self._inodes(callers)
        wanted = set(inodes.values()) - {_NOBODYS}
        owners: dict[int, Party] = {}
        asked: Processes | None = None
        # A broker that was started a moment ago may be written down while others are asked.
        while wanted - owners.keys() and (known := self._known()) != asked:
            asked = known
            for party, process in known.items():
                missing = wanted - owners.keys()
                owners |= dict.fromkeys(self._open_sockets(process, missing), party)
        return [owners.get(inodes.get(caller, _NOBODYS), CLIENTS) for caller in callers]

    def _inodes(self, callers: Sequence[Caller]) -> dict[Caller, int]:
        found: dict[Caller, int] = {}
        for _ in range(_LOOKS_MAX):
            for name in _TABLES:
                missing = [caller for caller in callers if caller not in found]
                if not missing:
                    return found
                table = _content(self._proc / name)
                for caller in missing:
                    inode = find_inode(table, caller)
                    if inode is not None:
                        found[caller] = inode
        return found

    def _open_sockets(self, process: ProcessIdentity, wanted: set[int]) -> set[int]:
        """Which of the sockets the process has open."""
        found: set[int] = set()
        folder = self._proc / str(process.pid) / "fd"
        try:
            descriptors = sorted(map(int, os.listdir(folder)), reverse=True)  # noqa: PTH208
        except OSError:
            return found  # It has ended, or is not ours to ask.
        # Among the last ones opened, most likely, and what was opened last has a high number.
        for descriptor in descriptors:
            if found == wanted:
                break
            try:
                socket = _SOCKET.fullmatch(os.readlink(f"{folder}/{descriptor}"))  # noqa: PTH115
            except OSError:
                continue  # Closed meanwhile.
            if socket is not None and int(socket[1]) in wanted:
                found.add(int(socket[1]))
        return found


def find_inode(table: bytes, caller: Caller) -> int | None:
    """The inode of the caller's end in one of the kernel's tables; 0 if nobody has it open now."""
    for prefix in ("", _MAPPED_PREFIX):
        ends = b" %b %b " % (
            _address(prefix, caller.host, caller.port),
            _address(prefix, caller.listen_host, caller.listen_port),
        )
        _, found, rest = table.partition(ends)
        if found:
            return int(rest.partition(b"\n")[0].split()[_INODE_FIELD])
    return None


def known_processes(state_file: Path) -> Processes:
    """The brokers that run, by their parties; nobody while there is no state file to be read."""
    try:
        brokers = read_state(state_file)
    except LabError:
        return {}
    return {
        broker_party(broker.id): broker.process for broker in brokers if is_running(broker.process)
    }


def _address(prefix: str, host: str, port: int) -> bytes:
    """As the kernel writes it: each word of the address in the machine's own order of bytes."""
    word = int.from_bytes(IPv4Address(host).packed, sys.byteorder)
    return f"{prefix}{word:08X}:{port:04X}".encode()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
