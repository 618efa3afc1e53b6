"""The network of a local cluster, for whoever starts it and for whoever wants to cut it.

    network = LabNetwork.start(folder, routes, is_tied=True)     before brokers are started, that
    ...                                                          advertise the ports of their routes
    LabNetwork.find(folder).cut(broker_party(1), CLIENTS)        from any other process
    network.stop()

It runs in a process of its own (`process.py`); every call here asks it over its control socket, and
what a call asks for is so when it returns. Calls block, for milliseconds, and remember nothing, so
that any number of processes and threads may steer one network.
"""

import fcntl
import json
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Final, Self

from tidelog.lab.errors import FolderUnusable, PortInUse
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network import control
from tidelog.lab.network.errors import (
    NetworkDied,
    NetworkError,
    NetworkRunsAlready,
    NoNetwork,
)
from tidelog.lab.network.parties import Party
from tidelog.lab.network.places import TIED, NetworkFolder
from tidelog.lab.network.routes import LISTEN_HOST, Route, write_routes
from tidelog.lab.network.status import NetworkStatus
from tidelog.lab.processes import ProcessIdentity, identify, send_signal, wait_for_end

_READY_WITHIN_S: Final = 30.0
_ANSWER_WITHIN_S: Final = 10.0
_STOP_WITHIN_S: Final = 10.0
_FIRST_LINE_MAX_BYTES: Final = 4_096
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


class LabNetwork:
    """A network that runs, and can be steered. Made by `start` or `find`."""

    def __init__(
        self,
        folder: NetworkFolder,
        process: ProcessIdentity,
        child: subprocess.Popen[bytes] | None,
    ) -> None:
        self._folder = folder
        self._child = child
        self.process = process

    @classmethod
    def start(cls, folder: ClusterFolder, routes: Sequence[Route], *, is_tied: bool) -> Self:
        """Start one in the cluster's folder; return once it listens at every route's port.

        One that is tied ends when this process does, however it ends. PortInUse, NetworkRunsAlready
        and FolderUnusable say why there is none; after any failure nothing runs.
        """
        places = NetworkFolder(folder.root)
        child: subprocess.Popen[bytes] | None = None
        try:
            folder.root.mkdir(parents=True, exist_ok=True)
            _require_none(places)
            write_routes(places.routes_file, routes)
            child = _spawn(places, is_tied=is_tied)
            _wait_until_ready(places, child)
            process = identify(child.pid)
        except OSError as error:
            _give_up(child)
            raise FolderUnusable(folder.root, error.strerror or str(error)) from error
        except BaseException:
            _give_up(child)
            raise
        if process is None:
            _give_up(child)
            raise NetworkDied(f"the network has ended; see {places.output_file}")
        return cls(places, process, child)

    @classmethod
    def find(cls, folder: ClusterFolder) -> Self:
        """The one that runs in the cluster's folder; NoNetwork if none does."""
        places = NetworkFolder(folder.root)
        return cls(places, _ask_status(places).process, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        self.stop()

    # -- what is done to links -------------------------------------------------------------------

    def cut(self, a: Party, b: Party) -> None:
        """Let nothing pass between the two, in either direction; neither of them is told."""
        self.cut_between([a], [b])

    def cut_between(self, these: Collection[Party], those: Collection[Party]) -> None:
        """Cut every link from one group to the other; within a group nothing changes."""
        self._tell(control.Cut(tuple(these), tuple(those)))

    def slow(self, a: Party, b: Party, *, delay_ms: int) -> None:
        """Let everything between the two take so much longer, each way; 0 undoes it."""
        self.slow_between([a], [b], delay_ms=delay_ms)

    def slow_between(
        self, these: Collection[Party], those: Collection[Party], *, delay_ms: int
    ) -> None:
        self._tell(control.Slow(tuple(these), tuple(those), delay_ms))

    def heal(self, a: Party, b: Party) -> None:
        """Undo what was done to one link; what was held up goes on, in order."""
        self.heal_between([a], [b])

    def heal_between(self, these: Collection[Party], those: Collection[Party]) -> None:
        self._tell(control.Heal(tuple(these), tuple(those)))

    def heal_all(self) -> None:
        self._tell(control.HealAll())

    # -- who is behind it ------------------------------------------------------------------------

    def add_route(self, route: Route) -> None:
        """Lead to one more party; CommandRefused if its port is in use."""
        self._tell(control.AddRoute(route))

    def remove_routes(self, party: Party) -> None:
        """Lead to a party no more; its links are whole if it comes back."""
        self._tell(control.RemoveRoutes(party))

    # -- the process -----------------------------------------------------------------------------

    def status(self) -> NetworkStatus:
        return _ask_status(self._folder)

    def stop(self) -> None:
        """End it, with every connection that passes through it; nothing if it has ended."""
        with suppress(NetworkError):
            self._tell(control.Stop())
        if self._child is None:
            if not wait_for_end(self.process, timeout_s=_STOP_WITHIN_S):
                send_signal(self.process, signal.SIGKILL)
            return
        try:
            self._child.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
        _give_up(self._child)

    def _tell(self, command: control.Command) -> None:
        control.decode_done(_ask(self._folder, command))


def _ask_status(folder: NetworkFolder) -> NetworkStatus:
    return control.decode_status(_ask(folder, control.AskStatus()))


def _ask(folder: NetworkFolder, command: control.Command) -> bytes:
    """The answer of whoever runs in the folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_WITHIN_S)
        try:
            with folder.socket_address() as address:
                connection.connect(address)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
            raise NoNetwork(folder.root) from error
        except OSError as error:
            raise NetworkError(f"{folder.socket_file} cannot be used: {error.strerror}") from error
        try:
            connection.sendall(control.encode_command(command))
            with connection.makefile("rb") as answer:
                return answer.readline(_ANSWER_BYTES_MAX)
        except OSError as error:
            raise NetworkDied(f"the network in {folder.root} did not answer") from error


# -- starting ------------------------------------------------------------------------------------


def _require_none(folder: NetworkFolder) -> None:
    """Refuse to write down routes for others than those who run."""
    with folder.lock_file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NetworkRunsAlready(folder.root) from error


def _spawn(folder: NetworkFolder, *, is_tied: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "tidelog.lab.network", str(folder.root)]
    with folder.output_file.open("ab") as output:
        return subprocess.Popen(
            [*command, TIED] if is_tied else command,
            stdin=subprocess.PIPE if is_tied else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            # A Ctrl-C at the terminal is for whoever started it, who may need it for a while.
            start_new_session=True,
            bufsize=0,
        )


def _wait_until_ready(folder: NetworkFolder, child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    line = _first_line(child.stdout)
    child.stdout.close()
    try:
        said = json.loads(line)
    except ValueError as error:
        raise NetworkDied(f"the network did not start; see {folder.output_file}") from error
    if said.get("port") is not None:
        raise PortInUse(LISTEN_HOST, said["port"])
    if "error" in said:
        raise NetworkError(said["error"])


def _first_line(output: IO[bytes]) -> bytes:
    """What the child says first; as much as it has said if it ends, or takes too long."""
    give_up_at = time.monotonic() + _READY_WITHIN_S
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while not line.endswith(b"\n") and len(line) < _FIRST_LINE_MAX_BYTES:
            if not selector.select(max(0.0, give_up_at - time.monotonic())):
                break
            said = output.read(_FIRST_LINE_MAX_BYTES)
            if not said:
                break
            line += said
    return line


def _give_up(child: subprocess.Popen[bytes] | None) -> None:
    if child is None:
        return
    if child.poll() is None:
        child.kill()
    child.wait()  # Nothing survives SIGKILL.
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
