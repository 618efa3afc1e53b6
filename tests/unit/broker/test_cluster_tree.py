"""What is written in several transactions makes sense after each of them (N2, KIP-455)."""

import asyncio
from dataclasses import replace
from random import Random

from tests.unit.broker.controllers import FlakyTree
from tests.unit.core.controller.clusters import broker, ids, partition
from tidelog.base.errors import SessionLost
from tidelog.base.ids import BrokerId, TopicId
from tidelog.broker.cluster_session import new_id
from tidelog.broker.cluster_tree import ClusterTree
from tidelog.core.controller.changes import PartitionChanged, TopicCreated
from tidelog.core.controller.image import ClusterImage, TopicImage
from tidelog.core.controller.nodes import TOKEN_BYTES

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
    loaded = await store.load(CLUSTER)
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
    return (await ClusterTree(tree.connect()).load(CLUSTER)).image


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
