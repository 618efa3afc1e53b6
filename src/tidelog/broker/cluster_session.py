"""A broker's place in the cluster for the length of one session with the coordinator.

    connect ──▶ make the common nodes ──▶ register ──▶ (claims, requests) ──▶ closed or lost

A broker registers under its id as long as its session lives. One that was killed leaves a
registration behind that somebody is about to remove; one that is alive keeps it. Registering waits
for the first and refuses to double the second.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from uuid import UUID

from tidelog.base.errors import ConfigError
from tidelog.broker.cluster_tree import ClusterTree, Fence
from tidelog.coordination.port import Coordinator, NodeExists
from tidelog.core.controller import nodes
from tidelog.core.controller.image import BrokerImage

NOT_REGISTERED = -1

Connect = Callable[[], Awaitable[Coordinator]]


@dataclass(slots=True)
class ClusterSession:
    """`fence` is set while this broker is controller."""

    coordinator: Coordinator
    tree: ClusterTree
    cluster_id: str
    broker_epoch: int = NOT_REGISTERED
    fence: Fence | None = None


async def begin(
    connect: Connect, *, new_cluster_id: str, joined_cluster_id: str | None
) -> ClusterSession:
    """Begin a session.

    `new_cluster_id` is used if the cluster has no id yet. Raises AnotherCluster if this is not the
    `joined_cluster_id` to which this broker has belonged: in an empty tree all its topics would
    look deleted.
    """
    coordinator = await connect()
    try:
        tree = ClusterTree(coordinator)
        if joined_cluster_id is not None:
            await tree.require(joined_cluster_id)
        return ClusterSession(coordinator, tree, await tree.prepare(new_cluster_id))
    except BaseException:
        await coordinator.close()
        raise


async def register(
    session: ClusterSession,
    broker: BrokerImage,
    *,
    registration_timeout_ms: int,
    now_ms: Callable[[], int],
) -> None:
    """Say that `broker` is alive, and learn the epoch of that.

    Raises ConfigError if a broker with the same id still lives after `registration_timeout_ms`.
    """
    try:
        async with asyncio.timeout(registration_timeout_ms / 1_000):
            await _register(session, broker, now_ms)
    except TimeoutError:
        raise ConfigError(
            f"node.id is {broker.broker_id}, but a broker with that id is running"
        ) from None


async def _register(
    session: ClusterSession, broker: BrokerImage, now_ms: Callable[[], int]
) -> None:
    coordinator, tree = session.coordinator, session.tree
    while True:  # Ends when the id is free, or with the caller's patience.
        with suppress(NodeExists):
            await tree.register(broker, now_ms=now_ms())
        node = await coordinator.get(nodes.broker_path(broker.broker_id))
        if node is not None and node.owner_session == coordinator.session_id:
            session.broker_epoch = node.creation_id
            return
        async for found in coordinator.watch(nodes.broker_path(broker.broker_id)):
            if found is None:
                break


def new_id(random: Random) -> UUID:
    """An id for a topic or a cluster, as Kafka draws them."""
    while True:
        drawn = UUID(int=random.getrandbits(128), version=4)
        # Kafka's tools would take it for an option.
        if not nodes.encode_uuid(drawn).startswith("-"):
            return drawn
