"""What is written in several transactions makes sense after each of them (N2, KIP-455)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import cast

from tests.unit.broker.controllers import FlakyTree
from tests.unit.core.controller.clusters import broker, ids, partition
from tidelog.base.errors import SessionLost
from tidelog.base.ids import BrokerId, TopicId
from tidelog.broker.cluster_session import new_id
from tidelog.broker.cluster_tree import ClusterTree
from tidelog.coordination.port import Coordinator, Node
from tidelog.core.controller.changes import PartitionChanged, TopicCreated, TopicDeleted
from tidelog.core.controller.image import ClusterImage, TopicImage
from tidelog.core.controller.nodes import TOKEN_BYTES, topic_path

PARTITION_COUNT = 6_000
TOPIC = "large"
CLUSTER = "cluster"


async def moved(tree: FlakyTree, writes_left: int) -> ClusterImage:
    """A topic whose partitions were all to be moved, as it is after so many transactions."""
    coordinator = tree.connect()
    store = ClusterTree(coordinator)
    await store.prepare(CLUSTER)
    await store.register(broker(1), now_ms=0)
    fence = await store.claim(BrokerId(1), token=bytes(TOKEN_BYTES), now_ms=0)
    assert fence is not None
    loaded = await store.load(CLUSTER, is_controller=False)
    topic = TopicImage(TOPIC, TopicId(new_id(Random(1))), (partition(1, 2),) * PARTITION_COUNT)
    created = [TopicCreated(topic, {})]
    image = loaded.image.apply_all(created)
    await store.write(store.prepare_write(fence, loaded.image, created, image))
    moves = [
        PartitionChanged(
            TOPIC,
            number,
            replace(state, replicas=ids(1, 3), isr=ids(1), partition_epoch=1),
        )
        for number, state in enumerate(topic.partitions)
    ]
    prepared = store.prepare_write(fence, image, moves, image.apply_all(moves))
    assert len(prepared.transactions) > 2
    tree.writes_left = writes_left
    try:
        await store.write(prepared)
    except SessionLost:
        tree.writes_left = None
    return (await ClusterTree(tree.connect()).load(CLUSTER, is_controller=False)).image


def test_every_part_of_a_large_move_can_be_read_by_the_next_controller() -> None:
    async def run() -> None:
        for writes in (1, 2):
            image = await moved(FlakyTree(), writes)
            states = image.topics[TOPIC].partitions
            stored = [state for state in states if state.replicas == ids(1, 3)]
            assert all(state.partition_epoch == 1 for state in stored)
            assert all(state.isr == ids(1, 2) for state in states if state.replicas == ids(1, 2))
            assert 0 < len(stored) < PARTITION_COUNT

    asyncio.run(run())


class _Interrupted:
    """A coordinator at which somebody else acts between two reads of many nodes."""

    def __init__(self, coordinator: Coordinator, act: Callable[[], Awaitable[None]]) -> None:
        self._coordinator = coordinator
        self._act = act
        self.reads: list[Sequence[str]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._coordinator, name)

    async def get_many(self, paths: Sequence[str]) -> Sequence[Node | None]:
        found = await self._coordinator.get_many(paths)
        self.reads.append(paths)
        if paths == [topic_path(TOPIC)]:
            await self._act()
        return found


async def load_during(change: PartitionChanged | TopicDeleted) -> ClusterImage:
    """What a broker reads that starts while the controller writes `change` of a topic."""
    tree = FlakyTree()
    store = ClusterTree(tree.connect())
    await store.prepare(CLUSTER)
    await store.register(broker(1), now_ms=0)
    fence = await store.claim(BrokerId(1), token=bytes(TOKEN_BYTES), now_ms=0)
    assert fence is not None
    before = (await store.load(CLUSTER, is_controller=False)).image
    topic = TopicImage(TOPIC, TopicId(new_id(Random(1))), (partition(1, 2),))
    created = [TopicCreated(topic, {})]
    image = before.apply_all(created)
    await store.write(store.prepare_write(fence, before, created, image))
    changes = [change]

    async def act() -> None:
        if not changes:
            return
        (now,) = changes
        changes.clear()
        if isinstance(now, TopicDeleted):
            await store.mark_deletions(fence, [TOPIC])
            await store.finish_deletions(fence, [TOPIC])
        else:
            await store.write(store.prepare_write(fence, image, [now], image.apply_all([now])))

    interrupted = _Interrupted(tree.connect(), act)
    loaded = await ClusterTree(cast(Coordinator, interrupted)).load(CLUSTER, is_controller=False)
    assert not changes
    assert loaded.stateless == []
    return loaded.image


def test_replicas_that_move_while_a_broker_reads_are_read_with_the_state_that_fits_them() -> None:
    """With the old replicas and the new version it would take the controller's word for old."""
    state = replace(partition(1, 2), replicas=ids(1, 3), isr=ids(1, 3), partition_epoch=1)

    image = asyncio.run(load_during(PartitionChanged(TOPIC, 0, state)))

    assert image.topics[TOPIC].partitions == (state,)


def test_a_topic_that_is_deleted_while_a_broker_reads_is_not_there() -> None:
    topic_id = TopicId(new_id(Random(1)))

    image = asyncio.run(load_during(TopicDeleted(TOPIC, topic_id)))

    assert image.topics == {}
