"""Broker processes that this one starts: spawned, then ready, then known to each other.

    spawn ──▶ prints its ready line ──▶ those started with it know it
                 │                        │
                 └── BrokerDied, NotReady, StartCancelled: whoever started it ends it

Brokers are leaders of sessions of their own: a Ctrl-C at the terminal reaches whoever started
them, which tells them to stop, and not them.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_membership
from tidelog.config.properties import read_properties
from tidelog.lab import launch
from tidelog.lab.broker_output import OutputTail, Ready, last_lines, parse_ready
from tidelog.lab.errors import BrokerDied, NotReady, StartCancelled
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.processes import identify
from tidelog.lab.state import BrokerState

_POLL_INTERVAL_S: Final = 0.005
_ANSWER_WITHIN_S: Final = 5.0
# A broker that logs more than this between two starts has its output moved aside.
_OUTPUT_BYTES_MAX: Final = 16 * 1024 * 1024
# Everybody that this process has started and that may run. Somebody has to ask how a child ended,
# or the kernel keeps its corpse; and Python complains of a child that is dropped while it runs.
_children: Final[list[subprocess.Popen[bytes]]] = []


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for brokers to be ready, and a question: does anybody still want them?"""

    ready_within_s: float
    is_cancelled: Callable[[], bool]


@dataclass(slots=True)
class StartedBroker:
    """A broker that this process started. What it prints begins at `output_start` of its file."""

    state: BrokerState
    child: subprocess.Popen[bytes]
    output_start: int
    announces_itself: bool
    """Whether it prints the line that says it is ready; others are asked."""
    is_behind_proxy: bool
    """Whether the address that it prints is not where it listens."""


@dataclass(frozen=True, slots=True)
class Place:
    """A broker that is prepared to be started, and where it should listen then."""

    broker_id: int
    host: str
    port: int


def write_command(folder: ClusterFolder, broker_id: int, command: Sequence[str]) -> None:
    """Have a broker that is not one of ours started by this command, now and ever after."""
    folder.command_file(broker_id).write_text(json.dumps([*command], indent=2) + "\n", "utf-8")


def spawn(folder: ClusterFolder, broker_id: int, *, host: str, port: int) -> StartedBroker:
    """Start a broker with its properties file, which should make it listen at `host` and `port`."""
    foreign = _foreign_command(folder, broker_id)
    output_file = folder.output_file(broker_id)
    if output_file.exists() and output_file.stat().st_size > _OUTPUT_BYTES_MAX:
        output_file.replace(output_file.with_name(output_file.name + ".1"))
    with output_file.open("ab") as output:
        output_start = output.tell()
        child = subprocess.Popen(
            foreign or launch.broker_command(str(folder.properties_file(broker_id))),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=launch.broker_environment(os.environ),
            start_new_session=True,
        )
    bury_the_dead()
    _children.append(child)
    process = identify(child.pid)
    state = BrokerState(
        id=broker_id,
        host=host,
        port=port,
        pid=child.pid,
        start_mark="" if process is None else process.start_mark,
        started_ms=time.time_ns() // 1_000_000,
    )
    folder.pid_file(broker_id).write_text(f"{child.pid}\n", encoding="utf-8")
    return StartedBroker(
        state,
        child,
        output_start,
        announces_itself=foreign is None,
        is_behind_proxy="advertised.listeners"
        in read_properties(folder.properties_file(broker_id)),
    )


def bury_the_dead() -> None:
    """Let go of children that have ended."""
    _children[:] = [child for child in _children if child.poll() is None]


def wait_until_ready(
    folder: ClusterFolder, brokers: Sequence[StartedBroker], patience: Patience
) -> None:
    """Return once each that says so serves clients; their states then say where."""
    give_up_at = time.monotonic() + patience.ready_within_s
    tails = {
        broker.state.id: OutputTail(folder.output_file(broker.state.id), broker.output_start)
        for broker in brokers
    }
    waiting = [broker for broker in brokers if broker.announces_itself]
    while waiting:
        for broker in list(waiting):
            has_ended = broker.child.poll() is not None
            ready = _first_ready(tails[broker.state.id])
            if ready is not None:
                if not broker.is_behind_proxy:
                    broker.state = replace(broker.state, host=ready.host, port=ready.port)
                waiting.remove(broker)
            elif has_ended:
                raise death_of(folder, broker)
        if waiting:
            _go_on_waiting(folder, waiting[0], patience, give_up_at)


def wait_until_acquainted(
    folder: ClusterFolder, brokers: Sequence[StartedBroker], patience: Patience
) -> None:
    """Return once all of them know each other and a controller."""
    give_up_at = time.monotonic() + patience.ready_within_s
    expected = {broker.state.id for broker in brokers}
    waiting = list(brokers)
    while waiting:
        for broker in brokers:
            if broker.child.poll() is not None:
                raise death_of(folder, broker)
        waiting = [broker for broker in waiting if not _knows(broker.state, expected)]
        if waiting:
            _go_on_waiting(folder, waiting[0], patience, give_up_at)


def death_of(folder: ClusterFolder, broker: StartedBroker) -> BrokerDied:
    """What is known about the end of a broker that has ended."""
    assert broker.child.returncode is not None
    return BrokerDied(broker.state.id, broker.child.returncode, _last_lines(folder, broker))


def _go_on_waiting(
    folder: ClusterFolder, broker: StartedBroker, patience: Patience, give_up_at: float
) -> None:
    """Sleep a moment, unless nobody wants the broker any more or its time is up."""
    if patience.is_cancelled():
        raise StartCancelled(f"broker {broker.state.id} was not ready yet")
    if time.monotonic() >= give_up_at:
        raise NotReady(broker.state.id, patience.ready_within_s, _last_lines(folder, broker))
    time.sleep(_POLL_INTERVAL_S)


def _foreign_command(folder: ClusterFolder, broker_id: int) -> list[str] | None:
    path = folder.command_file(broker_id)
    if not path.exists():
        return None
    command = json.loads(path.read_text("utf-8"))
    return [str(word) for word in command]


def _knows(broker: BrokerState, expected: set[int]) -> bool:
    try:
        membership = ask_membership(broker.endpoint, timeout_s=_ANSWER_WITHIN_S)
    except ClientError:
        return False
    return expected <= membership.broker_ids and membership.controller_id is not None


def _first_ready(output: OutputTail) -> Ready | None:
    for line in output.new_lines():
        ready = parse_ready(line)
        if ready is not None:
            return ready
    return None


def _last_lines(folder: ClusterFolder, broker: StartedBroker) -> tuple[str, ...]:
    return last_lines(folder.output_file(broker.state.id), from_position=broker.output_start)
