"""Which socket is at the other end of a connection on this machine, by the kernel's word.

There are two ways to ask. Linux answers a question about one connection in microseconds over a
netlink socket (sock_diag(7)), where it was built to. Elsewhere there are the tables in /proc/net,
which it takes milliseconds to write down. A JVM's sockets are IPv6 ones with IPv4 addresses in
them: they are in a table of their own, and sock_diag finds them by their IPv4 addresses.
"""

import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

NOBODYS: Final = 0
"""The inode of a socket that no process has open any more."""

_HOST: Final = "127.0.0.1"
# While sockets come and go, one that stays can be left out of the kernel's table.
_LOOKS_MAX: Final = 3
_TABLES: Final = ("net/tcp", "net/tcp6")
_MAPPED_PREFIX: Final = f"{0:016X}{int.from_bytes(bytes([0, 0, 255, 255]), sys.byteorder):08X}"
_INODE_FIELD: Final = 6
"""Behind the two addresses: state, queues, timer, retransmits, uid, timeout, inode."""

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_ANSWER_MAX_BYTES: Final = 8_192
_ANSWER_WITHIN_S: Final = 5.0
_NETLINK_HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_QUESTION: Final = struct.Struct("=BBBxI")
"""Beginning of struct inet_diag_req_v2: family, protocol, extensions, states; then a socket id."""
_SOCKET_ID: Final = struct.Struct(">HH16s16s4s8s")
"""struct inet_diag_sockid: ports and addresses of this end and the other, interface, cookie."""
_ANY_STATE: Final = 0xFFFF_FFFF
_ANY_INTERFACE: Final = bytes(4)
_NO_COOKIE: Final = b"\xff" * 8
_INODE: Final = struct.Struct("=I")
_INODE_AT: Final = _NETLINK_HEADER.size + 4 + _SOCKET_ID.size + 4 * 4
"""In struct inet_diag_msg: behind state, id, expiry, two queues and the user."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The two ends of an accepted connection, IPv4 addresses as text."""

    host: str
    port: int
    listen_host: str
    listen_port: int


FindInodes = Callable[[Sequence[Caller]], Mapping[Caller, int]]
"""The inodes of the callers' ends; those that the kernel does not know any more are left out."""


def best_way(proc: Path) -> FindInodes:
    """The fastest way that works on this machine; finds nobody where there is none."""
    return inodes_by_diag if _has_diag() else partial(inodes_by_tables, proc)


def inodes_by_diag(callers: Sequence[Caller]) -> dict[Caller, int]:
    """Ask about each of them; OSError where the kernel has no such socket."""
    found: dict[Caller, int] = {}
    with socket.socket(_netlink_family(), socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_WITHIN_S)
        for caller in callers:
            kernel.send(encode_question(caller))
            inode = decode_answer(kernel.recv(_ANSWER_MAX_BYTES), caller)
            if inode is not None:
                found[caller] = inode
    return found


def inodes_by_tables(proc: Path, callers: Sequence[Caller]) -> dict[Caller, int]:
    """Look them up in the tables below `proc`."""
    found: dict[Caller, int] = {}
    for _ in range(_LOOKS_MAX):
        for name in _TABLES:
            missing = [caller for caller in callers if caller not in found]
            if not missing:
                return found
            table = _content(proc / name)
            for caller in missing:
                inode = find_inode(table, caller)
                if inode is not None:
                    found[caller] = inode
    return found


def encode_question(caller: Caller) -> bytes:
    """Of which socket is this the address, and that the address of its other end?"""
    question = _QUESTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY_STATE) + _socket_id(
        caller
    )
    size_bytes = _NETLINK_HEADER.size + len(question)
    return _NETLINK_HEADER.pack(size_bytes, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + question


def decode_answer(answer: bytes, caller: Caller) -> int | None:
    """The inode of the caller's end; None if there is no such socket."""
    if len(answer) < _INODE_AT + _INODE.size:
        return None
    _size, kind, _flags, _sequence, _port = _NETLINK_HEADER.unpack_from(answer)
    at = _NETLINK_HEADER.size + 4
    ends = answer[at : at + _SOCKET_ID.size]
    # Of a connection that is no more it finds who listens at that port, if anybody does.
    same_ports = ends[:4] == _socket_id(caller)[:4]
    if kind != _SOCK_DIAG_BY_FAMILY or not same_ports:
        return None
    (inode,) = _INODE.unpack_from(answer, _INODE_AT)
    return int(inode)


def find_inode(table: bytes, caller: Caller) -> int | None:
    """The inode of the caller's end in one of the kernel's tables; None if it is not there."""
    for prefix in ("", _MAPPED_PREFIX):
        ends = b" %b %b " % (
            _address(prefix, caller.host, caller.port),
            _address(prefix, caller.listen_host, caller.listen_port),
        )
        _, found, rest = table.partition(ends)
        if found:
            return int(rest.partition(b"\n")[0].split()[_INODE_FIELD])
    return None


def _has_diag() -> bool:
    """Whether the kernel finds one that there is: without sock_diag it says that there is none."""
    with (
        socket.create_server((_HOST, 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        caller = Caller(*connection.getsockname(), *listener.getsockname())
        try:
            return caller in inodes_by_diag([caller])
        except OSError:
            return False


def _netlink_family() -> int:
    if sys.platform != "linux":
        raise OSError("there is no netlink here")
    return socket.AF_NETLINK


def _socket_id(caller: Caller) -> bytes:
    return _SOCKET_ID.pack(
        caller.port,
        caller.listen_port,
        IPv4Address(caller.host).packed,
        IPv4Address(caller.listen_host).packed,
        _ANY_INTERFACE,
        _NO_COOKIE,
    )


def _address(prefix: str, host: str, port: int) -> bytes:
    """As the kernel writes it: each word of the address in the machine's own order of bytes."""
    word = int.from_bytes(IPv4Address(host).packed, sys.byteorder)
    return f"{prefix}{word:08X}:{port:04X}".encode()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
