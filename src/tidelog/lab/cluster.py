"""A cluster of broker processes on this machine.

Whoever starts the brokers holds a `LocalCluster` and hears of their deaths. Anybody else - `down`,
`status` - finds them through the state file (`running_brokers`, `stop_broker`).

    start ──▶ spawned, state written ──▶ ready line seen ──▶ state written again ──▶ running
                    │                        │
                    └── port taken, died, too slow: the others are killed, the state file goes

The state is written before a broker is ready so that one that hangs while starting can be found.
Brokers are leaders of sessions of their own: a Ctrl-C at the terminal reaches whoever started
them, which tells them to stop, and not them.
"""

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from tidelog.config.broker import BrokerConfig
from tidelog.lab import launch
from tidelog.lab.broker_output import OutputTail, Ready, last_lines, parse_ready
from tidelog.lab.errors import (
    AlreadyRunning,
    BrokerDied,
    FolderUnusable,
    NotReady,
    PortInUse,
    StartCancelled,
)
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.processes import identify, send_signal, wait_for_end
from tidelog.lab.state import BrokerState, read_state, write_state

FIRST_BROKER_ID: Final = 1
_READY_POLL_INTERVAL_S: Final = 0.005
_END_POLL_INTERVAL_S: Final = 0.01
# A broker that logs more than this between two starts has its output moved aside.
_OUTPUT_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What to start: brokers 1..N on `port`, `port` + 1, ...; port 0 lets the system choose."""

    broker_count: int
    host: str
    port: int
    settings: Mapping[str, str]


@dataclass(slots=True)
class BrokerProcess:
    """A broker that this process started."""

    state: BrokerState
    child: subprocess.Popen[bytes]
    output: OutputTail
    output_start: int


class LocalCluster:
    """Brokers started by this process, in one data folder."""

    def __init__(self, folder: ClusterFolder) -> None:
        self.folder = folder
        self.brokers: list[BrokerProcess] = []

    @property
    def states(self) -> tuple[BrokerState, ...]:
        return tuple(broker.state for broker in self.brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(state.address for state in self.states)

    def start(
        self, plan: ClusterPlan, *, ready_within_s: float, is_cancelled: Callable[[], bool]
    ) -> None:
        """Start every broker and return once each accepts clients.

        ConfigError for a setting no broker would take. After any failure nothing runs.
        """
        _require_nameable(self.folder)
        properties = {
            broker_id: _properties(self.folder, plan, broker_id)
            for broker_id in range(FIRST_BROKER_ID, FIRST_BROKER_ID + plan.broker_count)
        }
        for chosen in properties.values():
            BrokerConfig.load(chosen)
        try:
            with _starting(self.folder):
                for broker_id, chosen in properties.items():
                    self._spawn(broker_id, plan, chosen)
                self._write_state()
            for broker in self.brokers:
                self._wait_until_ready(broker, ready_within_s, is_cancelled)
            self._write_state()
        except OSError as error:
            self.kill()
            raise FolderUnusable(self.folder.root, error.strerror or str(error)) from error
        except BaseException:
            self.kill()
            raise

    def died(self) -> BrokerProcess | None:
        """A broker that has ended, if one has."""
        for broker in self.brokers:
            if broker.child.poll() is not None:
                return broker
        return None

    def death_of(self, broker: BrokerProcess) -> BrokerDied:
        """What is known about the end of a broker that has ended."""
        assert broker.child.returncode is not None
        output_file = self.folder.output_file(broker.state.id)
        lines = last_lines(output_file, from_position=broker.output_start)
        return BrokerDied(broker.state.id, broker.child.returncode, lines)

    def terminate(self) -> None:
        """Tell every broker to stop cleanly. `wait` says when they have."""
        for broker in self.brokers:
            broker.child.terminate()

    def wait(self, *, is_impatient: Callable[[], bool]) -> bool:
        """Return once every broker has ended, or False as soon as the caller is impatient."""
        while any(broker.child.poll() is None for broker in self.brokers):
            if is_impatient():
                return False
            time.sleep(_END_POLL_INTERVAL_S)
        self._forget()
        return True

    def kill(self) -> None:
        """End every broker at once, as a power cut would."""
        for broker in self.brokers:
            broker.child.kill()
        self.wait(is_impatient=lambda: False)

    def _spawn(self, broker_id: int, plan: ClusterPlan, properties: Mapping[str, str]) -> None:
        folder = self.folder
        folder.log_dir(broker_id).mkdir(parents=True, exist_ok=True)
        port = plan.port and plan.port + broker_id - FIRST_BROKER_ID
        if "listeners" not in plan.settings:
            _require_port_free(plan.host, port)
        lines = [f"{name}={_escaped(value)}\n" for name, value in properties.items()]
        folder.properties_file(broker_id).write_text("".join(lines), encoding="utf-8")
        output_file = folder.output_file(broker_id)
        if output_file.exists() and output_file.stat().st_size > _OUTPUT_BYTES_MAX:
            output_file.replace(output_file.with_name(output_file.name + ".1"))
        with output_file.open("ab") as output:
            output_start = output.tell()
            child = subprocess.Popen(
                launch.broker_command(str(folder.properties_file(broker_id))),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=launch.broker_environment(os.environ),
                start_new_session=True,
            )
        process = identify(child.pid)
        state = BrokerState(
            id=broker_id,
            host=plan.host,
            port=port,
            pid=child.pid,
            start_mark="" if process is None else process.start_mark,
            started_ms=time.time_ns() // 1_000_000,
        )
        tail = OutputTail(output_file, output_start)
        self.brokers.append(BrokerProcess(state, child, tail, output_start))
        folder.pid_file(broker_id).write_text(f"{child.pid}\n", encoding="utf-8")

    def _wait_until_ready(
        self, broker: BrokerProcess, timeout_s: float, is_cancelled: Callable[[], bool]
    ) -> None:
        give_up_at = time.monotonic() + timeout_s
        while True:
            has_ended = broker.child.poll() is not None
            ready = _first_ready(broker.output)
            if ready is not None:
                broker.state = replace(broker.state, host=ready.host, port=ready.port)
                # What it said before it was ready is for whoever watches it from now on.
                output_file = self.folder.output_file(broker.state.id)
                broker.output = OutputTail(output_file, broker.output_start)
                return
            if has_ended:
                raise self.death_of(broker)
            if is_cancelled():
                raise StartCancelled(f"broker {broker.state.id} was not ready yet")
            if time.monotonic() >= give_up_at:
                lines = last_lines(
                    self.folder.output_file(broker.state.id), from_position=broker.output_start
                )
                raise NotReady(broker.state.id, timeout_s, lines)
            time.sleep(_READY_POLL_INTERVAL_S)

    def _write_state(self) -> None:
        write_state(self.folder.state_file, self.states)

    def _forget(self) -> None:
        if not self.brokers:
            return
        # `up` may have been run again in this folder since our brokers were stopped from outside.
        if read_state(self.folder.state_file) == self.states:
            forget_brokers(self.folder)


def running_brokers(folder: ClusterFolder) -> tuple[BrokerState, ...]:
    """The brokers of the cluster in `folder` that are alive."""
    return tuple(broker for broker in read_state(folder.state_file) if broker.is_alive)


def stop_broker(broker: BrokerState, *, within_s: float) -> bool:
    """Tell a broker to stop cleanly; whether it has ended within that time."""
    send_signal(broker.process, signal.SIGTERM)
    return wait_for_end(broker.process, timeout_s=within_s)


def kill_broker(broker: BrokerState) -> None:
    """End a broker at once and return when it has."""
    send_signal(broker.process, signal.SIGKILL)
    # Ends: nothing survives SIGKILL but a process stuck in the kernel, and that one is worth it.
    while not wait_for_end(broker.process, timeout_s=60):
        continue


def forget_brokers(folder: ClusterFolder) -> None:
    """Remove the state and pid files of brokers that have ended."""
    for broker in read_state(folder.state_file):
        folder.pid_file(broker.id).unlink(missing_ok=True)
    folder.state_file.unlink(missing_ok=True)


@contextmanager
def _starting(folder: ClusterFolder) -> Iterator[None]:
    """Let one starter at a time into the data folder, and none while a cluster runs there."""
    folder.root.mkdir(parents=True, exist_ok=True)
    with folder.lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for broker in running_brokers(folder):
            raise AlreadyRunning(folder.root, broker.address, broker.pid)
        yield


def _require_nameable(folder: ClusterFolder) -> None:
    """Refuse a folder that `log.dirs` cannot name: it is a list, one line of text in UTF-8."""
    name = os.fsencode(folder.root)
    if b"," in name or b"\n" in name:
        raise FolderUnusable(folder.root, "its name holds a comma or the end of a line")
    try:
        name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FolderUnusable(folder.root, "its name is not text in UTF-8") from error


def _properties(folder: ClusterFolder, plan: ClusterPlan, broker_id: int) -> dict[str, str]:
    port = plan.port and plan.port + broker_id - FIRST_BROKER_ID
    host = f"[{plan.host}]" if ":" in plan.host else plan.host
    return {
        "listeners": f"PLAINTEXT://{host}:{port}",
        "log.dirs": str(folder.log_dir(broker_id)),
        "tidelog.coordination": f"sqlite:{folder.coordination_file}",
        **plan.settings,
        "node.id": str(broker_id),
    }


def _require_port_free(host: str, port: int) -> None:
    """Say so before a broker is started; the broker would only end with an error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the broker will: connections of a broker that was just stopped do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUse(host, port) from error


def _first_ready(output: OutputTail) -> Ready | None:
    for line in output.new_lines():
        ready = parse_ready(line)
        if ready is not None:
            return ready
    return None


def _escaped(value: str) -> str:
    """A value as a properties file holds it."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
