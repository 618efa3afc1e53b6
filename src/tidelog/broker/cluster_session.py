"""A broker's place in the cluster for the length of one session with the coordinator.

    connect ──▶ make the common nodes ──▶ register ──▶ (claims, requests) ──▶ closed or lost

A broker registers under its id as long as its session lives. One that was killed leaves a
registration behind that somebody is about to remove; one that is alive keeps it. Joining waits for
the first and refuses to double the second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from uuid import UUID

from tidelog.base.errors import ConfigError
from tidelog.base.ids import TopicPartition
from tidelog.broker.cluster_tree import ClusterTree, Fence
from tidelog.config.topic import TopicConfig
from tidelog.coordination.port import Coordinator, NodeExists
from tidelog.core.controller import nodes
from tidelog.core.controller.election import elections
from tidelog.core.controller.image import BrokerImage, ClusterImage

UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"

Connect = Callable[[], Awaitable[Coordinator]]


@dataclass(slots=True)
class ClusterSession:
    """`fence` is set while this broker is controller."""

    coordinator: Coordinator
    tree: ClusterTree
    cluster_id: str
    fence: Fence | None = None


async def join(
    connect: Connect,
    broker: BrokerImage,
    *,
    new_cluster_id: str,
    joined_cluster_id: str | None,
    registration_timeout_ms: int,
    now_ms: Callable[[], int],
) -> ClusterSession:
    """Begin a session and register `broker`.

    `new_cluster_id` is used if the cluster has no id yet. Raises ConfigError if a broker with the
    same id still lives after `registration_timeout_ms`, and StorageError if this is not the
    `joined_cluster_id` to which this broker has belonged: in an empty tree all its topics would
    look deleted.
    """
    coordinator = await connect()
    try:
        tree = ClusterTree(coordinator)
        if joined_cluster_id is not None:
            await tree.require(joined_cluster_id)
        cluster_id = await tree.prepare(new_cluster_id)
        async with asyncio.timeout(registration_timeout_ms / 1_000):
            await _register(coordinator, tree, broker, now_ms)
    except TimeoutError:
        await coordinator.close()
        raise ConfigError(
            f"node.id is {broker.broker_id}, but a broker with that id is running"
        ) from None
    except BaseException:
        await coordinator.close()
        raise
    return ClusterSession(coordinator, tree, cluster_id)


async def _register(
    coordinator: Coordinator, tree: ClusterTree, broker: BrokerImage, now_ms: Callable[[], int]
) -> None:
    while True:  # Ends when the id is free, or with the caller's patience.
        with suppress(NodeExists):
            await tree.register(broker, now_ms=now_ms())
            return
        async for node in coordinator.watch(nodes.broker_path(broker.broker_id)):
            if node is None:
                break


async def load(session: ClusterSession, topic_defaults: TopicConfig) -> ClusterImage:
    """The cluster as the tree has it. A controller also finishes what it finds half done."""
    loaded = await session.tree.load(session.cluster_id)
    if session.fence is None:
        return loaded.image
    if loaded.deleting:
        await session.tree.finish_deletions(session.fence, loaded.deleting)
    if loaded.stateless:
        await session.tree.write_first_states(session.fence, loaded.image, loaded.stateless)
    return await elect_leaders(
        session.tree, session.fence, loaded.image, loaded.leaderless, topic_defaults
    )


async def elect_leaders(
    tree: ClusterTree,
    fence: Fence,
    image: ClusterImage,
    leaderless: Iterable[TopicPartition],
    topic_defaults: TopicConfig,
) -> ClusterImage:
    """Store a new leader for each of `leaderless`, in one transaction; the image after it."""

    def allow_unclean(topic: str) -> bool:
        overrides = image.topic_config(topic)
        if UNCLEAN_LEADER_ELECTION not in overrides:
            return topic_defaults.unclean_leader_election_enable
        return TopicConfig.resolve(overrides, topic_defaults).unclean_leader_election_enable

    changes = elections(image, leaderless, allow_unclean)
    if not changes:
        return image
    after = image.apply_all(changes)
    await tree.write(tree.prepare_write(fence, changes, after))
    return after


def new_id(random: Random) -> UUID:
    """An id for a topic or a cluster, as Kafka draws them."""
    while True:
        drawn = UUID(int=random.getrandbits(128), version=4)
        # Kafka's tools would take it for an option.
        if not nodes.encode_uuid(drawn).startswith("-"):
            return drawn
