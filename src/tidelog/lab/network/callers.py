"""Whose connection is it? The kernel knows, and on Linux it tells.

    accepted from 127.0.0.1:40312 ──▶ socket_inodes.py: the socket at the other end is inode 7151
                                  ──▶ /proc/<pid>/fd/*: broker 2 has socket:[7151] open

Asked are only the processes of the cluster, which its state file names. A caller that none of them
is, that has gone meanwhile, or that lives on a machine without /proc is one of the `clients`.

A broker has thousands of files open, so whoever has many connections to ask about asks once for
all. Nothing is remembered: inodes, descriptors and process ids are used again.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tidelog.lab.errors import LabError
from tidelog.lab.network.parties import CLIENTS, Party, broker_party
from tidelog.lab.network.socket_inodes import NOBODYS, Caller, FindInodes
from tidelog.lab.processes import ProcessIdentity, is_running
from tidelog.lab.state import read_state

PROC: Final = Path("/proc")
_SOCKET: Final = re.compile(r"socket:\[([0-9]+)\]")

Processes = Mapping[Party, ProcessIdentity]


class Callers:
    """Tells parties by the sockets they have open. Blocks, for milliseconds."""

    def __init__(self, known: Callable[[], Processes], find_inodes: FindInodes, proc: Path) -> None:
        self._known = known
        self._find_inodes = find_inodes
        self._proc = proc

    def identify(self, callers: Sequence[Caller]) -> list[Party]:
        """The party of each, in their order."""
        inodes = self._find_inodes(callers)
        wanted = set(inodes.values()) - {NOBODYS}
        owners: dict[int, Party] = {}
        asked: Processes | None = None
        # A broker that was started a moment ago may be written down while others are asked.
        while wanted - owners.keys() and (known := self._known()) != asked:
            asked = known
            for party, process in known.items():
                missing = wanted - owners.keys()
                owners |= dict.fromkeys(self._open_sockets(process, missing), party)
        return [owners.get(inodes.get(caller, NOBODYS), CLIENTS) for caller in callers]

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


def known_processes(state_file: Path) -> Processes:
    """The brokers that run, by their parties; nobody while there is no state file to be read."""
    try:
        brokers = read_state(state_file)
    except LabError:
        return {}
    return {
        broker_party(broker.id): broker.process for broker in brokers if is_running(broker.process)
    }
