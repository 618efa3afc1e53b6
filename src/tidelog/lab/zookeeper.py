"""A ZooKeeper ensemble of processes on this machine, for people and tests that have none.

The servers' classes come from jars that are there already: those of an installed pyspark, or those
that `make peers` fetches. Whoever starts the servers holds a `ZooKeeperEnsemble`; `down` finds them
through the state file (`running_servers`, `stop_server`). The folder of an ensemble:

DIR/
  ensemble.json           who runs; written by whoever started the servers
  ensemble.lock           held while an ensemble is being started
  log4j2.properties
  server-1/
    zoo.cfg               the settings it was started with
    server.log            what it printed
    data/                 its snapshots and logs

Everybody on this machine may read and write what is in it: there is no authentication.
"""

import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from tidelog.lab.broker_output import last_lines
from tidelog.lab.errors import (
    AlreadyRunning,
    FolderUnusable,
    LabError,
    StartCancelled,
    exit_text,
)
from tidelog.lab.ports import hold_any_port, hold_port
from tidelog.lab.processes import ProcessIdentity, identify, is_running, send_signal, wait_for_end
from tidelog.pipeline.java import java_programs, package_folder

HOST: Final = "127.0.0.1"
FIRST_SERVER_ID: Final = 1
JARS_VARIABLE: Final = "TIDELOG_ZOOKEEPER_JARS"

_STATE_VERSION: Final = 1
_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_SERVER_JAR: Final = "zookeeper-3.*.jar"
# Of the hundreds of jars that pyspark has. Looking through all would double the time to start.
_JAR_NAMES: Final = (
    "commons-io-*", "log4j-api-*", "log4j-core-*", "log4j-slf4j2-impl-*", "metrics-core-*",
    "netty-buffer-*", "netty-codec-4*", "netty-codec-base-*", "netty-common-*",
    "netty-handler-4*", "netty-resolver-4*", "netty-transport-4*", "slf4j-api-*", "snappy-java-*",
    "zookeeper-3*", "zookeeper-jute-*",
)  # fmt: skip
_JVM_OPTIONS: Final = (
    "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-Dzookeeper.jmx.log4j.disable=true", "-Dlog4j2.disableJmx=true",
    # A log of 64 MiB, empty at first, would be made for every server.
    "-Dzookeeper.preAllocSize=1024",
)  # fmt: skip
_LOGGING: Final = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n%ex{short}
"""
# A short tick lets sessions be short; a server may be slow for as long as with ZooKeeper's own.
_SETTINGS: Final = {
    "tickTime": "200",
    "initLimit": "100",
    "syncLimit": "50",
    "minSessionTimeout": "400",
    "maxSessionTimeout": "60000",
    "clientPortAddress": HOST,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "srvr, mntr, ruok",
    "autopurge.purgeInterval": "1",
}
_POLL_INTERVAL_S: Final = 0.02
_ANSWER_TIMEOUT_S: Final = 2.0


class ZooKeeperUnavailable(LabError):
    """Something that servers are made of is not installed."""


class ServerDied(LabError):
    """A server ended without being told to. `last_lines` are the end of what it printed."""

    def __init__(self, server_id: int, exit_code: int, lines: tuple[str, ...]) -> None:
        super().__init__(f"ZooKeeper server {server_id} {exit_text(exit_code)}")
        self.last_lines = lines


class EnsembleNotReady(LabError):
    """The servers run but did not agree on a leader in time."""

    def __init__(self, timeout_s: float, lines: tuple[str, ...]) -> None:
        super().__init__(f"the ZooKeeper ensemble was not ready after {timeout_s:.0f} s")
        self.last_lines = lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One server of an ensemble, as it was started."""

    id: int
    port: int
    pid: int
    start_mark: str

    @property
    def process(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.start_mark)

    @property
    def is_alive(self) -> bool:
        return is_running(self.process)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class _Ports:
    client: int
    quorum: int
    election: int


class ZooKeeperEnsemble:
    """Servers 1..N started by this process, in one folder.

    Clients connect to `port`, `port` + 1, ...; port 0 takes free ones.
    """

    def __init__(self, folder: Path, *, server_count: int, port: int) -> None:
        self.folder = folder
        self.server_ids = range(FIRST_SERVER_ID, FIRST_SERVER_ID + server_count)
        self._port = port
        self._ports: dict[int, _Ports] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._output_starts: dict[int, int] = {}
        self._states: dict[int, ServerState] = {}

    @property
    def hosts(self) -> str:
        """What `zookeeper.connect` takes, without a chroot."""
        return ",".join(self.address(server_id) for server_id in self.server_ids)

    @property
    def states(self) -> tuple[ServerState, ...]:
        return tuple(self._states.values())

    def address(self, server_id: int) -> str:
        return f"{HOST}:{self._ports[server_id].client}"

    def output_file(self, server_id: int) -> Path:
        return self.folder / f"server-{server_id}" / "server.log"

    def start(self, *, ready_within_s: float, is_cancelled: Callable[[], bool]) -> None:
        """Start every server and return once all of them serve. After a failure nothing runs."""
        command = _command_prefix()
        try:
            with _starting(self.folder):
                _require_same_size(self.folder, len(self.server_ids))
                self._ports = _choose_ports(self.server_ids, self._port)
                (self.folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
                for server_id in self.server_ids:
                    self._prepare(server_id)
                    self._spawn(server_id, command)
                write_state(self.folder, self.states)
            self.wait_until_serving(within_s=ready_within_s, is_cancelled=is_cancelled)
        except OSError as error:
            self.stop()
            raise FolderUnusable(self.folder, error.strerror or str(error)) from error
        except BaseException:
            self.stop()
            raise

    def wait_until_serving(self, *, within_s: float, is_cancelled: Callable[[], bool]) -> None:
        """Return once every server that should run serves; those that were killed should not."""
        give_up_at = time.monotonic() + within_s
        while True:
            self._require_alive()
            modes = [self.mode(server_id) for server_id in self._children]
            if None not in modes and modes.count("follower") < len(modes):
                return
            if is_cancelled():
                raise StartCancelled("the ZooKeeper ensemble was not ready yet")
            if time.monotonic() >= give_up_at:
                raise EnsembleNotReady(within_s, self._last_lines(next(iter(self._children))))
            time.sleep(_POLL_INTERVAL_S)

    def mode(self, server_id: int) -> str | None:
        """What a server says it is: leader, follower, standalone; None if it does not serve."""
        for line in _ask(self._ports[server_id].client, "srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def leader(self) -> int | None:
        """The id of the server that leads, if one does."""
        for server_id in self._children:
            if self.mode(server_id) in {"leader", "standalone"}:
                return server_id
        return None

    def kill(self, server_id: int) -> None:
        """End a server at once, as a power cut would."""
        child = self._children.pop(server_id)
        child.kill()
        child.wait()
        self._states.pop(server_id)
        write_state(self.folder, self.states)

    def signal(self, server_id: int, number: signal.Signals) -> None:
        self._children[server_id].send_signal(number)

    def restart(self, server_id: int) -> None:
        """Start a server that was killed; `wait_until_serving` says when it serves."""
        assert server_id not in self._children
        self._spawn(server_id, _command_prefix())
        write_state(self.folder, self.states)

    def died(self) -> ServerDied | None:
        """A server that has ended without being told to, if one has."""
        for server_id, child in self._children.items():
            if child.poll() is not None:
                return ServerDied(server_id, child.returncode, self._last_lines(server_id))
        return None

    def stop(self) -> None:
        """End every server. What was acknowledged is on their disks."""
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            child.wait()  # A JVM ends on SIGTERM, whatever ZooKeeper is doing.
        if self._children and read_state(self.folder) == self.states:
            forget_servers(self.folder)
        self._children.clear()
        self._states.clear()

    def launch(self, command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Run a server, in a session of its own: a Ctrl-C is meant for whoever started it."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _prepare(self, server_id: int) -> None:
        data = self._folder_of(server_id) / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{server_id}\n", encoding="utf-8")
        settings = {
            **_SETTINGS,
            "dataDir": str(data),
            "clientPort": str(self._ports[server_id].client),
        }
        if len(self.server_ids) > 1:
            settings["standaloneEnabled"] = "false"
            for each, ports in self._ports.items():
                settings[f"server.{each}"] = f"{HOST}:{ports.quorum}:{ports.election}"
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._config_file(server_id).write_text("".join(lines), encoding="utf-8")

    def _spawn(self, server_id: int, command: Sequence[str]) -> None:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        with self.output_file(server_id).open("ab") as output:
            self._output_starts[server_id] = output.tell()
            child = self.launch(
                [*command, logging, _MAIN_CLASS, str(self._config_file(server_id))], output
            )
        process = identify(child.pid)
        self._children[server_id] = child
        self._states[server_id] = ServerState(
            id=server_id,
            port=self._ports[server_id].client,
            pid=child.pid,
            start_mark="" if process is None else process.start_mark,
        )

    def _require_alive(self) -> None:
        death = self.died()
        if death is not None:
            raise death

    def _last_lines(self, server_id: int) -> tuple[str, ...]:
        start = self._output_starts[server_id]
        return last_lines(self.output_file(server_id), from_position=start)

    def _folder_of(self, server_id: int) -> Path:
        return self.folder / f"server-{server_id}"

    def _config_file(self, server_id: int) -> Path:
        return self._folder_of(server_id) / "zoo.cfg"


def why_unavailable() -> str | None:
    """One sentence that says what is missing on this machine, or None if servers can be run."""
    if next(java_programs(), None) is None:
        return "ZooKeeper needs Java: install it, or 'pip install tidelog[zookeeper]'"
    if _find_jars() is None:
        return (
            "ZooKeeper's jars were not found: 'pip install tidelog[zookeeper]' brings them with "
            f"pyspark, or name a folder that has them in {JARS_VARIABLE}"
        )
    return None


def running_servers(folder: Path) -> tuple[ServerState, ...]:
    """The servers of the ensemble in `folder` that are alive."""
    return tuple(server for server in read_state(folder) if server.is_alive)


def stop_server(server: ServerState, *, within_s: float) -> bool:
    """Tell a server to stop; whether it has ended within that time."""
    send_signal(server.process, signal.SIGTERM)
    return wait_for_end(server.process, timeout_s=within_s)


def forget_servers(folder: Path) -> None:
    """Remove the state file of servers that have ended."""
    _state_file(folder).unlink(missing_ok=True)


def read_state(folder: Path) -> tuple[ServerState, ...]:
    """The servers that were started; none if the file is not there."""
    path = _state_file(folder)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != _STATE_VERSION:
            raise ValueError(content["version"])
        return tuple(
            ServerState(
                id=int(server["id"]),
                port=int(server["port"]),
                pid=int(server["pid"]),
                start_mark=str(server["start_mark"]),
            )
            for server in content["servers"]
        )
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} does not say which servers run; remove it if none does") from error


def write_state(folder: Path, servers: tuple[ServerState, ...]) -> None:
    """Replace the file; a reader sees the old content or the new."""
    path = _state_file(folder)
    content = {"version": _STATE_VERSION, "servers": [asdict(server) for server in servers]}
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def _state_file(folder: Path) -> Path:
    return folder / "ensemble.json"


@contextmanager
def _starting(folder: Path) -> Iterator[None]:
    """Let one starter at a time into the folder, and none while an ensemble runs there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "ensemble.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for server in running_servers(folder):
            raise AlreadyRunning(folder, server.address, server.pid)
        yield


def _require_same_size(folder: Path, server_count: int) -> None:
    """Refuse to grow or shrink: servers without data could agree that there is none."""
    existing = len(list(folder.glob("server-*")))
    if existing not in {0, server_count}:
        raise FolderUnusable(folder, f"it holds an ensemble of {existing}, not of {server_count}")


def _command_prefix() -> list[str]:
    reason = why_unavailable()
    java, jars = next(java_programs(), None), _find_jars()
    if reason is not None or java is None or jars is None:
        raise ZooKeeperUnavailable(reason)
    found = [str(jar) for name in _JAR_NAMES for jar in sorted(jars.glob(f"{name}.jar"))]
    return [str(java), *_JVM_OPTIONS, "-cp", os.pathsep.join(found)]


def _find_jars() -> Path | None:
    named = os.environ.get(JARS_VARIABLE)
    pyspark = package_folder("pyspark")
    peers = Path(os.environ.get("TIDELOG_PEERS") or Path.home() / ".cache" / "tidelog" / "peers")
    folders = [
        *([Path(named)] if named else []),
        *([pyspark / "jars"] if pyspark is not None else []),
        *(fetched / "libs" for fetched in sorted(peers.glob("zookeeper-*"))),
    ]
    return next((folder for folder in folders if any(folder.glob(_SERVER_JAR))), None)


def _choose_ports(server_ids: Sequence[int], first_port: int) -> dict[int, _Ports]:
    """Ports that nobody listens at now; the clients' are counted up from `first_port`, if given."""
    chance = random.SystemRandom()
    with ExitStack() as held:
        chosen = {}
        for index, server_id in enumerate(server_ids):
            if first_port:
                client = hold_port(held, HOST, first_port + index)
            else:
                client = hold_any_port(held, HOST, chance)
            quorum, election = (hold_any_port(held, HOST, chance) for _ in range(2))
            chosen[server_id] = _Ports(client, quorum, election)
    return chosen


def _ask(port: int, word: str) -> str:
    """A server's answer to one of ZooKeeper's four-letter words; nothing if there is none."""
    try:
        with socket.create_connection((HOST, port), timeout=_ANSWER_TIMEOUT_S) as connection:
            connection.sendall(word.encode())
            with connection.makefile("rb") as answer:
                return answer.read().decode(errors="replace")
    except OSError:
        return ""
