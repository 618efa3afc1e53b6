"""The process that a cluster's network is: proxies, and a socket by which they are steered.

    python -P -m tidelog.lab.network FOLDER [--tied]

    start ──▶ lock, routes, listeners, control socket ──▶ {"ready": true} on stdout ──▶ serves
                 └── {"error": ..., "port": ...} and exit code 2             │
                                                                             ▼
         told to stop, SIGTERM, its folder removed, or, with --tied, its standard input ends

Whoever starts it chooses whether it is tied: the network of a lab's own cluster must not outlive a
lab that was killed; that of `tidelog up` lives for as long as its brokers, which do.

Nothing that comes by the control socket can do harm: a line is a command that is carried out, or is
answered with an error.
"""

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import Final, assert_never, cast

import uvloop

from tidelog.lab.errors import LabError, PortInUse
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.launch import allow_open_files
from tidelog.lab.network import control
from tidelog.lab.network.callers import PROC, Callers, known_processes
from tidelog.lab.network.errors import CommandRefused, NetworkRunsAlready, NoSuchParty
from tidelog.lab.network.links import pairs_between
from tidelog.lab.network.parties import CLIENTS, Party
from tidelog.lab.network.places import TIED, NetworkFolder
from tidelog.lab.network.proxy import CONNECTIONS_MAX, Proxy
from tidelog.lab.network.routes import ROUTES_MAX, Route, read_routes
from tidelog.lab.network.socket_inodes import best_way
from tidelog.lab.network.status import LinkStatus, NetworkStatus
from tidelog.lab.processes import identify

EXIT_REFUSED: Final = 2
_EXIT_BUG: Final = 70
_CONTROL_CONNECTIONS_MAX: Final = 64
# Listeners, the control socket, and files of the interpreter.
_OTHER_DESCRIPTORS: Final = 512
_FOLDER_INTERVAL_S: Final = 1.0
_ANYBODY_ELSE: Final = 0o077


class SteeredProxy:
    """Carries out commands on a proxy. `stop` is called when one says so."""

    def __init__(
        self, proxy: Proxy, brokers: Callable[[], Sequence[Party]], stop: Callable[[], None]
    ) -> None:
        self._proxy = proxy
        self._brokers = brokers
        self._stop = stop

    def answer(self, line: bytes) -> bytes:
        """Do what a line says, and what to answer."""
        try:
            return self._carry_out(control.decode_command(line))
        except CommandRefused as error:
            return control.encode_refusal(str(error))

    def _carry_out(self, command: control.Command) -> bytes:
        links = self._proxy.links
        match command:
            case control.Cut(these, those):
                self._require_links(these, those)
                links.cut_between(these, those)
            case control.Slow(these, those, delay_ms):
                self._require_links(these, those)
                links.slow_between(these, those, delay_ms=delay_ms)
            case control.Heal(these, those):
                self._require_links(these, those)
                links.heal_between(these, those)
            case control.HealAll():
                links.heal_all()
            case control.AddRoute(route):
                self._add(route)
            case control.RemoveRoutes(party):
                self._remove(party)
            case control.AskStatus():
                return control.encode_status(self._status())
            case control.Stop():
                self._stop()
            case _:
                assert_never(command)
        self._proxy.on_links_changed()
        return control.encode_done()

    def _add(self, route: Route) -> None:
        if len(self._proxy.routes) >= ROUTES_MAX:
            raise CommandRefused(f"there are {ROUTES_MAX} routes already")
        try:
            self._proxy.add(route)
        except LabError as error:
            raise CommandRefused(str(error)) from error

    def _remove(self, party: Party) -> None:
        """What was done to its links is forgotten as well."""
        links = self._proxy.links
        for ends in [ends for ends in links.changed if party in ends]:
            links.heal(*ends)
        self._proxy.remove(party)

    def _require_links(self, these: Sequence[Party], those: Sequence[Party]) -> None:
        """Refuse what would be carried out and have no effect."""
        routed = {route.party for route in self._proxy.routes}
        known = routed | {CLIENTS, *self._brokers()}
        for party in (*these, *those):
            if party not in known:
                raise NoSuchParty(f"there is no {party} here, only {', '.join(sorted(known))}")
        for pair in pairs_between(these, those):
            if routed.isdisjoint(pair):
                raise CommandRefused(f"what {pair[0]} and {pair[1]} say does not come by here")

    def _status(self) -> NetworkStatus:
        me = identify(os.getpid())
        assert me is not None
        changed = ((sorted(ends), link) for ends, link in self._proxy.links.changed.items())
        return NetworkStatus(
            process=me,
            routes=self._proxy.routes,
            links=tuple(
                LinkStatus(a=a, b=b, is_cut=link.is_cut, delay_ms=link.delay_ms)
                for (a, b), link in sorted(changed, key=lambda each: each[0])
            ),
            pairs=tuple(self._proxy.pairs()),
            refused_count=self._proxy.refused_count,
        )


class ControlConnection(asyncio.Protocol):
    """Somebody who steers. Lines are answered in order, where they are read."""

    def __init__(self, answer: Callable[[bytes], bytes], others: set["ControlConnection"]) -> None:
        self._answer = answer
        self._others = others
        self._half_line = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._others.add(self)
        if len(self._others) > _CONTROL_CONNECTIONS_MAX:
            self._refuse("too many steer this network")

    def connection_lost(self, _exception: Exception | None) -> None:
        self._others.discard(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._half_line += data
        *lines, rest = self._half_line.split(b"\n")
        self._half_line = rest
        for line in lines:
            if self._transport.is_closing():
                return
            if len(line) > control.LINE_MAX_BYTES:
                self._refuse("the line is too long")
            else:
                self._transport.write(self._answer(bytes(line)))
        if len(rest) > control.LINE_MAX_BYTES:
            self._refuse("the line is too long")

    def pause_writing(self) -> None:
        """Who does not read answers gets no more of them."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _refuse(self, reason: str) -> None:
        assert self._transport is not None
        self._half_line.clear()
        self._transport.write(control.encode_refusal(reason))
        self._transport.close()


def main(arguments: Sequence[str]) -> int:
    """Serve until told otherwise. Returns the exit code of the process."""
    root, *options = arguments
    allow_open_files()
    try:
        with _locked(NetworkFolder(Path(root))) as folder:
            return uvloop.run(_serve(folder, is_tied=TIED in options))
    except PortInUse as error:
        _say({"error": str(error), "port": error.port})
    except LabError as error:
        _say({"error": str(error)})
    return EXIT_REFUSED


async def _serve(folder: NetworkFolder, *, is_tied: bool) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_end_process)
    stopping = asyncio.Event()
    for ending in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(ending, stopping.set)
    state_file = ClusterFolder(folder.root).state_file
    callers = Callers(partial(known_processes, state_file), best_way(PROC), PROC)
    with ExitStack() as running:
        # One: who calls is asked for all that wait, and then for all that came meanwhile.
        executor = running.enter_context(ThreadPoolExecutor(1, "callers"))
        proxy = Proxy(
            loop=loop,
            routes=read_routes(folder.routes_file),
            identify=callers.identify,
            executor=executor,
            connections_max=_connections_max(),
        )
        running.callback(proxy.close)
        proxy.open()
        steered = SteeredProxy(proxy, lambda: [*known_processes(state_file)], stopping.set)
        await _listen_for_commands(loop, running, folder, steered)
        if is_tied:
            loop.add_reader(sys.stdin.fileno(), partial(_on_standard_input, loop, stopping))
        _say({"ready": True})
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(_end_with_folder(folder, stopping))
            finding_out = tasks.create_task(proxy.run())
            await stopping.wait()  # Ended by a command, a signal, or the end of starter or folder.
            finding_out.cancel()
            looking.cancel()
    return 0


async def _listen_for_commands(
    loop: asyncio.AbstractEventLoop,
    running: ExitStack,
    folder: NetworkFolder,
    steered: SteeredProxy,
) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder.socket_file.unlink(missing_ok=True)  # Nobody's: the lock is ours.
    before = os.umask(_ANYBODY_ELSE)
    try:
        with folder.socket_address() as address:
            listener.bind(address)
    finally:
        os.umask(before)
    running.callback(partial(folder.socket_file.unlink, missing_ok=True))
    others: set[ControlConnection] = set()
    server = await loop.create_unix_server(
        lambda: ControlConnection(steered.answer, others), sock=listener
    )
    running.callback(server.close)


async def _end_with_folder(folder: NetworkFolder, stopping: asyncio.Event) -> None:
    """Somebody who removes a cluster's folder leaves no way to tell its network to stop."""
    while folder.socket_file.exists():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_FOLDER_INTERVAL_S)
    stopping.set()


@contextmanager
def _locked(folder: NetworkFolder) -> Iterator[NetworkFolder]:
    with folder.lock_file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NetworkRunsAlready(folder.root) from error
        yield folder


def _connections_max() -> int:
    """What fits into the files this process may open, two for each."""
    soft, _hard = getrlimit(RLIMIT_NOFILE)
    return min(CONNECTIONS_MAX, max(1, (soft - _OTHER_DESCRIPTORS) // 2))


def _on_standard_input(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        loop.remove_reader(sys.stdin.fileno())
        stopping.set()


def _end_process(_loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
    """A bug: half a network would be taken for a fault of the cluster's."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        traceback.print_exception(error)
    else:
        sys.stderr.write(f"{context.get('message')}\n")
    sys.stderr.flush()
    os._exit(_EXIT_BUG)


def _say(content: Mapping[str, object]) -> None:
    """To whoever started us, who may have gone."""
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(content) + "\n")
        sys.stdout.flush()
