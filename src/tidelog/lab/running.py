"""Brokers that run in a data folder, whoever started them: found, stopped, killed, restarted.

They are found through the state file, which says who was started; who is alive is asked of the
operating system. Whoever changes both - who runs and what the file says - holds the folder's lock.
"""

import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_membership
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.ports import choose_ports
from tidelog.lab.processes import send_signal, wait_for_end
from tidelog.lab.starting import (
    Patience,
    StartedBroker,
    spawn,
    wait_until_acquainted,
    wait_until_ready,
)
from tidelog.lab.state import BrokerState, read_state, write_state
from tidelog.lab.surroundings import end_surroundings

# A broker that has not stopped by then does not keep the next from beginning to.
_TURN_S: Final = 5.0
_POLL_INTERVAL_S: Final = 0.01
_ANSWER_WITHIN_S: Final = 0.5


def running_brokers(folder: ClusterFolder) -> tuple[BrokerState, ...]:
    """The brokers of the cluster in `folder` that are alive."""
    return tuple(broker for broker in read_state(folder.state_file) if broker.is_alive)


def find_brokers(folder: ClusterFolder, broker_ids: Sequence[int]) -> tuple[BrokerState, ...]:
    """The brokers of these numbers, alive or not; LabError if one was not started here."""
    known = {broker.id: broker for broker in read_state(folder.state_file)}
    if not known:
        raise LabError(f"no cluster was started in {folder.root}")
    for broker_id in broker_ids:
        if broker_id not in known:
            numbers = ", ".join(map(str, known))
            raise LabError(f"there is no broker {broker_id} in {folder.root}, only {numbers}")
    return tuple(known[broker_id] for broker_id in broker_ids)


def stop_in_turn(
    brokers: Iterable[BrokerState], *, is_impatient: Callable[[], bool]
) -> tuple[BrokerState, ...]:
    """Tell brokers to stop cleanly, one after the other; who runs on when time is up.

    A broker hands its leaderships over before it closes its listener, and needs somebody to hand
    them to; so the next is told when that has happened, and flushes its logs beside the one before.
    The controller is the last, so that somebody is there to move leaderships.
    """
    told: list[BrokerState] = []
    for broker in _controller_last(brokers):
        send_signal(broker.process, signal.SIGTERM)
        told.append(broker)
        turn_ends_at = time.monotonic() + _TURN_S
        while _is_serving(broker) and time.monotonic() < turn_ends_at and not is_impatient():
            time.sleep(_POLL_INTERVAL_S)
    while (remaining := tuple(each for each in told if each.is_alive)) and not is_impatient():
        time.sleep(_POLL_INTERVAL_S)
    return remaining


def stop_cluster(
    folder: ClusterFolder, known: Iterable[BrokerState], *, is_impatient: Callable[[], bool]
) -> tuple[BrokerState, ...]:
    """Stop all that run in the folder, and forget them; who runs on when the caller is impatient.

    What the cluster has around its brokers ends with the last of them.
    Nobody can start one again in the meantime. `known` are stopped even if somebody has removed
    the folder under them.
    """
    with folder.locked():
        running = {
            broker.id: broker for broker in (*running_brokers(folder), *known) if broker.is_alive
        }
        remaining = stop_in_turn(running.values(), is_impatient=is_impatient)
        forget_brokers(folder)
        if not remaining:
            end_surroundings(folder)
    return remaining


def kill_broker(broker: BrokerState) -> None:
    """End a broker at once, as a power cut would, and return when it has."""
    send_signal(broker.process, signal.SIGKILL)
    # Ends: nothing survives SIGKILL but a process stuck in the kernel, and that one is worth it.
    while not wait_for_end(broker.process, timeout_s=60):
        continue


def restart_broker(
    folder: ClusterFolder, broker_id: int, *, stop_within_s: float, patience: Patience
) -> BrokerState:
    """Start a broker again where it was, with the settings it had; stop it first if it runs."""
    (state,) = restart_brokers(folder, [broker_id], stop_within_s=stop_within_s, patience=patience)
    return state


def restart_brokers(
    folder: ClusterFolder, broker_ids: Sequence[int], *, stop_within_s: float, patience: Patience
) -> tuple[BrokerState, ...]:
    """The same with several, which are stopped in turn and started together."""
    started: list[StartedBroker] = []
    try:
        with folder.locked():
            before = find_brokers(folder, broker_ids)
            _stop_all(before, stop_within_s)
            for broker in before:
                choose_ports(broker.host, first_port=broker.port, count=1)
                started += [spawn(folder, broker.id, host=broker.host, port=broker.port)]
            replace_states(folder, [each.state for each in started])
        wait_until_ready(folder, started, patience)
        wait_until_acquainted(folder, started, patience)
    except BaseException:
        for each in started:
            each.child.kill()
            each.child.wait()  # Nothing survives SIGKILL.
        raise
    return tuple(each.state for each in started)


def _stop_all(brokers: Sequence[BrokerState], within_s: float) -> None:
    stop_by = time.monotonic() + within_s
    remaining = stop_in_turn(brokers, is_impatient=lambda: time.monotonic() >= stop_by)
    for broker in remaining:
        raise LabError(f"broker {broker.id} (pid {broker.pid}) did not stop within {within_s:g} s")


def end_leftovers(folder: ClusterFolder) -> None:
    """Forget brokers that have ended, and end what was around them, unless one of them runs."""
    if not folder.root.is_dir():
        return
    with folder.locked():
        forget_brokers(folder)
        if not running_brokers(folder):
            end_surroundings(folder)


def forget_brokers(folder: ClusterFolder) -> None:
    """Remove what says that brokers were started here, unless one of them runs."""
    brokers = read_state(folder.state_file)
    if any(broker.is_alive for broker in brokers):
        return
    for broker in brokers:
        folder.pid_file(broker.id).unlink(missing_ok=True)
    folder.state_file.unlink(missing_ok=True)


def forget_some(folder: ClusterFolder, broker_ids: Iterable[int]) -> None:
    """Remove what says that these were started here; they have ended. Others may run."""
    forgotten = set(broker_ids)
    others = tuple(each for each in read_state(folder.state_file) if each.id not in forgotten)
    if others:
        write_state(folder.state_file, others)
    for broker_id in forgotten:
        folder.pid_file(broker_id).unlink(missing_ok=True)
    forget_brokers(folder)


def replace_states(folder: ClusterFolder, changed: Iterable[BrokerState]) -> None:
    """Have the state file say this of brokers that it names. Needs the folder's lock."""
    by_id = {broker.id: broker for broker in changed}
    states = read_state(folder.state_file)
    write_state(folder.state_file, tuple(by_id.get(each.id, each) for each in states))


def _is_serving(broker: BrokerState) -> bool:
    if not broker.is_alive:
        return False
    try:
        socket.create_connection(broker.endpoint, timeout=_ANSWER_WITHIN_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True  # Too busy to say.
    return True


def _controller_last(brokers: Iterable[BrokerState]) -> list[BrokerState]:
    ordered = list(brokers)
    if len(ordered) > 1:
        controller_id = _controller_id(ordered)
        ordered.sort(key=lambda broker: broker.id == controller_id)
    return ordered


def _controller_id(brokers: Sequence[BrokerState]) -> int | None:
    """Who controls the cluster, if one of the brokers says so at once."""
    for broker in brokers:
        try:
            return ask_membership(broker.endpoint, timeout_s=_ANSWER_WITHIN_S).controller_id
        except ClientError:
            continue
    return None
