"""Whoever becomes controller finishes what its predecessor left half done, wherever that died (C4).

An operation is carried out once undisturbed, which tells how many writes to the coordinator it
takes. Then it is carried out again for each of them, and the controller is killed at that write,
once before it is done and once after. In the end everything is as if the operation had not been
asked for, or as it was asked for; and when it is asked for again, it is as it was asked for.

Everything is tried with transactions of the usual size, and with very small ones, as if topics were
so large that a store does not take them whole.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.broker import cluster_tree
from tidelog.broker.admin_requests import AdminRequests
from tidelog.core.controller import nodes
from tidelog.core.controller.reassignment import Reassignment
from tidelog.core.controller.requests import NewPartitions, NewTopic, TopicReference

TOPIC = "half-done"
CONTROLLER = 1
BROKERS = 4
RECORDS = 5
LONG_S = 5.0
TRANSACTION_BYTES = cluster_tree.TRANSACTION_BYTES_MAX
# Takes a topic's node with the state of one partition, which must not be torn apart.
SMALL_TRANSACTION_BYTES = 800
WRITES_MAX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is asked of the controller, and when it has come about."""

    name: str
    prepare: Callable[[SimulatedCluster], None]
    ask: Callable[[SimulatedCluster], None]
    is_done: Callable[[SimulatedCluster], bool]
    is_untouched: Callable[[SimulatedCluster], bool]


def ask_controller(
    cluster: SimulatedCluster, question: Callable[[AdminRequests], Awaitable[object]]
) -> None:
    """Without waiting for an answer, which may never come."""
    controller = cluster.controller()
    assert controller.broker is not None
    assert controller.process is not None
    requests = controller.broker.requests

    async def run() -> None:
        with suppress(Exception):  # It may be refused, too: it is asked again.
            await question(requests)

    controller.process.loop.create_task(run())


def topics(cluster: SimulatedCluster) -> list[str]:
    return cluster.coordination.tree.children(nodes.TOPICS)


def partition_count(cluster: SimulatedCluster) -> int:
    if TOPIC not in topics(cluster):
        return 0
    return len(cluster.assignment(TOPIC).replicas)


def is_whole(cluster: SimulatedCluster) -> bool:
    """Every partition of every topic is led and fully in sync, and nothing is being deleted."""
    tree = cluster.coordination.tree
    if tree.children(nodes.DELETE_TOPICS):
        return False
    for name in topics(cluster):
        for number, replicas in enumerate(cluster.assignment(name).replicas):
            if tree.get(nodes.state_path(name, number)) is None:
                return False
            alive = [one for one in replicas if cluster.brokers[one].is_running]
            state = cluster.state(name, number)
            if not cluster.is_led(name, number) or set(state.isr) != set(alive):
                return False
    return True


# -- operations ----------------------------------------------------------------------------------


def make_topic(cluster: SimulatedCluster) -> None:
    """Neither led by the controller nor on it, so that its death is nothing but that."""
    cluster.create(TOPIC, (2, 3), (3, 4), (4, 2))
    for partition in range(3):
        assert cluster.produce(TOPIC, RECORDS, partition).error_code == ErrorCode.NONE


def nothing(_cluster: SimulatedCluster) -> None:
    """There is nothing to prepare."""


def create(cluster: SimulatedCluster) -> None:
    new = NewTopic(
        name=TOPIC,
        assignments=tuple((number, (BrokerId(2), BrokerId(3))) for number in range(4)),
        configs=(("retention.ms", "-1"),),
    )
    ask_controller(cluster, lambda requests: requests.create_topics([new], validate_only=False))


def delete(cluster: SimulatedCluster) -> None:
    ask_controller(cluster, lambda requests: requests.delete_topics([TopicReference(name=TOPIC)]))


def add_partitions(cluster: SimulatedCluster) -> None:
    wanted = NewPartitions(
        topic=TOPIC,
        partition_count=6,
        assignments=tuple((BrokerId(2), BrokerId(4)) for _ in range(3)),
    )
    ask_controller(
        cluster, lambda requests: requests.create_partitions([wanted], validate_only=False)
    )


TARGETS = [(4, 3), (2, 3), (3, 2)]


def move(cluster: SimulatedCluster) -> None:
    moves = [
        Reassignment(TOPIC, number, tuple(map(BrokerId, target)))
        for number, target in enumerate(TARGETS)
    ]
    ask_controller(
        cluster,
        lambda requests: requests.alter_reassignments(moves, allow_replication_factor_change=True),
    )


def is_moved(cluster: SimulatedCluster) -> bool:
    return all(cluster.is_at(TOPIC, number, *target) for number, target in enumerate(TARGETS))


def is_not_moving(cluster: SimulatedCluster) -> bool:
    """Each by itself has arrived, or has never begun."""
    begun_at = [(2, 3), (3, 4), (4, 2)]
    return all(
        cluster.is_at(TOPIC, number, *begun_at[number]) or cluster.is_at(TOPIC, number, *target)
        for number, target in enumerate(TARGETS)
    )


def stop_broker(cluster: SimulatedCluster) -> None:
    """A broker that leads something asks whether it may stop, and does."""
    cluster.brokers[3].stop()


def has_stopped(cluster: SimulatedCluster) -> bool:
    return not cluster.brokers[3].is_running and all(
        cluster.state(TOPIC, number).leader in (2, 4) and 3 not in cluster.state(TOPIC, number).isr
        for number in range(3)
    )


OPERATIONS = [
    Operation(
        name="create",
        prepare=nothing,
        ask=create,
        is_done=lambda cluster: partition_count(cluster) == 4,
        is_untouched=lambda cluster: TOPIC not in topics(cluster),
    ),
    Operation(
        name="delete",
        prepare=make_topic,
        ask=delete,
        is_done=lambda cluster: TOPIC not in topics(cluster),
        is_untouched=lambda cluster: partition_count(cluster) == 3,
    ),
    Operation(
        name="add partitions",
        prepare=make_topic,
        ask=add_partitions,
        is_done=lambda cluster: partition_count(cluster) == 6,
        is_untouched=lambda cluster: partition_count(cluster) == 3,
    ),
    Operation(
        name="move", prepare=make_topic, ask=move, is_done=is_moved, is_untouched=is_not_moving
    ),
    Operation(
        name="controlled shutdown",
        prepare=make_topic,
        ask=stop_broker,
        is_done=has_stopped,
        is_untouched=lambda _: False,
    ),
]


# -- deaths --------------------------------------------------------------------------------------


@contextmanager
def prepared(operation: Operation, transaction_bytes: int) -> Iterator[SimulatedCluster]:
    with (
        patch.object(cluster_tree, "TRANSACTION_BYTES_MAX", transaction_bytes),
        patch.object(cluster_tree, "MOVES_PER_TRANSACTION_MAX", 1),
        simulated_cluster(BROKERS) as cluster,
    ):
        assert cluster.controller().broker_id == CONTROLLER
        operation.prepare(cluster)
        cluster.until(lambda: is_whole(cluster))
        yield cluster


def writes_of(operation: Operation, transaction_bytes: int) -> int:
    """How often the controller writes while nothing disturbs it."""
    with prepared(operation, transaction_bytes) as cluster:
        counts = cluster.coordination.write_counts
        before = counts[f"broker-{CONTROLLER}"]
        operation.ask(cluster)
        cluster.until(lambda: operation.is_done(cluster) and is_whole(cluster))
        cluster.run_for(LONG_S)
        return counts[f"broker-{CONTROLLER}"] - before


def die_at(operation: Operation, transaction_bytes: int, number: int, *, done: bool) -> None:
    with prepared(operation, transaction_bytes) as cluster:
        process = cluster.brokers[CONTROLLER].process
        assert process is not None
        cluster.coordination.kill_at_write(process, f"broker-{CONTROLLER}", number, done=done)
        operation.ask(cluster)
        cluster.until(lambda: not process.is_alive)
        assert cluster.controller().broker_id != CONTROLLER
        cluster.until(
            lambda: (
                (operation.is_done(cluster) or operation.is_untouched(cluster))
                and is_whole(cluster)
            )
        )
        if not operation.is_done(cluster):
            operation.ask(cluster)
            cluster.until(lambda: operation.is_done(cluster) and is_whole(cluster))
        require_records(cluster, operation)


def require_records(cluster: SimulatedCluster, operation: Operation) -> None:
    """Nothing that was acknowledged before has gone astray."""
    if operation.prepare is nothing or TOPIC not in topics(cluster):
        return
    for partition in range(3):
        for member in cluster.state(TOPIC, partition).isr:
            assert cluster.end_offset(member, TOPIC, partition) == RECORDS


@pytest.mark.parametrize("transaction_bytes", [TRANSACTION_BYTES, SMALL_TRANSACTION_BYTES])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_next_controller_finishes_what_was_half_done(
    operation: Operation, transaction_bytes: int
) -> None:
    writes = writes_of(operation, transaction_bytes)
    assert 1 <= writes <= WRITES_MAX
    for number in range(1, writes + 1):
        for done in (False, True):
            die_at(operation, transaction_bytes, number, done=done)
