"""Fetch at a leader with `replica.selector.class`: consumers hear of a replica in their rack."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.support.batches import plain_batch
from tests.support.kio_codec import milliseconds
from tests.unit.broker.served import NEW_SESSION, Client, Fetched, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, LISTENER, OTHER, replicated
from tidelog.base.ids import BrokerId, Offset
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop
from tidelog.wire.api import ApiKey

T0 = ("t", 0)
LONG_MS = 60_000
THIRD = BrokerId(3)
OTHER_EPOCH = 20
NEAR = "near"
FAR = "far"
NOBODY = -1
FOLLOWER_FETCH_VERSION = 17


def registered(
    rack: str | None, *, listener: str = LISTENER, broker: BrokerId = OTHER
) -> BrokerRegistered:
    endpoint = Endpoint(listener, "PLAINTEXT", "other", 9092)
    return BrokerRegistered(BrokerImage(broker, OTHER_EPOCH, (endpoint,), rack, LastStop.CLEAN))


@asynccontextmanager
async def leading(
    *, is_rack_aware: bool = True, rack: str | None = NEAR, listener: str = LISTENER
) -> AsyncIterator[ServedWorld]:
    """This broker, which says of no rack, leads; another one has followed and holds one record."""
    async with served_world(is_rack_aware=is_rack_aware) as served:
        world = served.world
        world.decide(registered(rack, listener=listener))
        world.create("t", state=replicated(BROKER, 0))
        await world.settle()
        world.produce("t", plain_batch(1))
        follow(served, 1)
        yield served


def follow(served: ServedWorld, offset: int, *, broker: BrokerId = OTHER) -> None:
    """Another broker has everything below `offset`."""
    served.world.runner("t").on_follower_fetch(
        broker,
        broker_epoch=OTHER_EPOCH,
        fetch_offset=Offset(offset),
        log_start_offset=Offset(0),
    )


def fetched(client: Client, offset: int = 0, *, rack: str = NEAR, version: int = 12) -> Fetched:
    client.fetch({T0: offset}, max_wait_ms=0, rack=rack, version=version)
    return client.fetched().partitions[T0]


# -- consumers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [11, 12])
@in_virtual_time
async def test_a_consumer_is_told_of_the_replica_in_its_rack(version: int) -> None:
    async with leading() as served:
        told = fetched(served.client(), version=version)
        assert told.preferred_read_replica == OTHER
        assert (told.code, told.records) == (0, b"")
        assert (told.high_watermark, told.last_stable_offset, told.log_start_offset) == (1, 1, 0)


@in_virtual_time
async def test_it_is_told_without_a_wait() -> None:
    """Also if there is nothing to read: it will wait there, not here."""
    async with leading() as served:
        client = served.client()
        client.fetch({T0: 1}, max_wait_ms=LONG_MS, rack=NEAR)
        assert client.fetched().partitions[T0].preferred_read_replica == OTHER


@pytest.mark.parametrize("rack", ["", FAR])
@in_virtual_time
async def test_who_is_not_near_any_follower_is_served_here(rack: str) -> None:
    async with leading() as served:
        told = fetched(served.client(), rack=rack)
        assert told.preferred_read_replica == NOBODY
        assert told.records


@in_virtual_time
async def test_without_the_setting_racks_mean_nothing() -> None:
    async with leading(is_rack_aware=False) as served:
        told = fetched(served.client())
        assert told.preferred_read_replica == NOBODY
        assert told.records


@in_virtual_time
async def test_a_replica_without_a_rack_is_near_nobody() -> None:
    async with leading(rack=None) as served:
        assert fetched(served.client()).preferred_read_replica == NOBODY


@in_virtual_time
async def test_a_replica_that_the_client_cannot_reach_is_not_named() -> None:
    """It has no address under the name of the listener that the client uses."""
    async with leading(listener="ELSEWHERE") as served:
        assert fetched(served.client()).preferred_read_replica == NOBODY


@pytest.mark.parametrize("offset", [0, 1])
@in_virtual_time
async def test_a_replica_that_leaves_the_isr_or_dies_is_not_named(offset: int) -> None:
    async with leading() as served:
        world = served.world
        client = served.client()
        world.change("t", replicated(BROKER, 0, isr=(BROKER,), partition_epoch=1))
        await world.settle()
        assert fetched(client, offset).preferred_read_replica == NOBODY
        world.change("t", replicated(BROKER, 0, partition_epoch=2))
        await world.settle()
        assert fetched(client, offset).preferred_read_replica == OTHER
        world.decide(BrokerGone(OTHER))
        assert fetched(client, offset).preferred_read_replica == NOBODY


@in_virtual_time
async def test_a_session_is_told_in_every_answer() -> None:
    async with leading() as served:
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS, session=NEW_SESSION, rack=NEAR)
        first = client.fetched()
        assert first.partitions[T0].preferred_read_replica == OTHER
        client.fetch({}, max_wait_ms=LONG_MS, session=(first.session_id, 1), rack=NEAR)
        assert client.fetched().partitions[T0].preferred_read_replica == OTHER
        served.world.decide(BrokerGone(OTHER))
        client.fetch({}, max_wait_ms=LONG_MS, session=(first.session_id, 2), rack=NEAR)
        last = client.fetched()
        assert last.partitions[T0].preferred_read_replica == NOBODY
        assert last.offsets() == [0]


@in_virtual_time
async def test_an_offset_that_the_replica_lacks_is_served_here() -> None:
    async with leading() as served:
        served.world.produce("t", plain_batch(1))
        assert fetched(served.client(), 1).preferred_read_replica == OTHER
        assert fetched(served.client(), 2).preferred_read_replica == NOBODY


# -- followers -----------------------------------------------------------------------------------


class Follower:
    """The other broker's fetches, in a session."""

    def __init__(self, served: ServedWorld) -> None:
        self._client = served.client()
        self._topic_id = served.world.image.topics["t"].topic_id
        self._session = (0, 0)

    def fetch(self, *offsets: int) -> None:
        """Ask, naming the partition if an offset is given."""
        partitions = [
            {
                "partition": 0,
                "current_leader_epoch": 0,
                "fetch_offset": offset,
                "last_fetched_epoch": -1,
                "log_start_offset": 0,
                "partition_max_bytes": 2**20,
                "replica_directory_id": None,
                "high_watermark": 2**63 - 1,
            }
            for offset in offsets
        ]
        topics = [{"topic_id": self._topic_id, "partitions": partitions}] if partitions else []
        values = {
            "cluster_id": None,
            "replica_state": {"replica_id": OTHER, "replica_epoch": OTHER_EPOCH},
            "max_wait": milliseconds(LONG_MS),
            "min_bytes": 1,
            "max_bytes": 2**20,
            "isolation_level": 0,
            "session_id": self._session[0],
            "session_epoch": self._session[1],
            "topics": topics,
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        self._client.send(ApiKey.FETCH, FOLLOWER_FETCH_VERSION, values)

    def heard(self) -> list[tuple[int, int]]:
        """High watermark and bytes of records in every answer there is."""
        return [self._one(answer) for answer in self._client.take()]

    def _one(self, answer: Any) -> tuple[int, int]:
        assert int(answer.error_code) == 0
        self._session = (answer.session_id, self._session[1] + 1)
        ((partition,),) = [topic.partitions for topic in answer.responses]
        assert int(partition.error_code) == 0
        return partition.high_watermark, len(partition.records or b"")


@in_virtual_time
async def test_a_follower_is_told_of_the_high_watermark_that_its_fetch_moves() -> None:
    async with leading() as served:
        follower = Follower(served)
        follower.fetch(1)
        assert follower.heard() == [(1, 0)]
        follower.fetch()
        await served.world.settle()
        assert follower.heard() == []  # It knows that.
        served.world.produce("t", plain_batch(1))
        await served.world.settle()
        assert follower.heard() == [(1, len(plain_batch(1)))]
        follower.fetch(2)
        assert follower.heard() == [(2, 0)]
        follower.fetch()
        await served.world.settle()
        assert follower.heard() == []


@pytest.mark.parametrize("is_rack_aware", [True, False])
@in_virtual_time
async def test_a_wait_ends_when_another_moves_the_high_watermark_only_with_the_setting(
    is_rack_aware: bool,
) -> None:
    """It would be another round trip for each commit."""
    async with leading(is_rack_aware=is_rack_aware) as served:
        world = served.world
        world.decide(registered(FAR, broker=THIRD))
        three = (BROKER, OTHER, THIRD)
        state = replace(replicated(BROKER, 0, isr=three, partition_epoch=1), replicas=three)
        world.change("t", state)
        await world.settle()
        follower = Follower(served)
        follower.fetch(1)
        world.produce("t", plain_batch(1))
        await world.settle()
        assert len(follower.heard()) == 1
        follower.fetch(2)
        await world.settle()
        follower.heard()
        follow(served, 2, broker=THIRD)
        await world.settle()
        assert world.runner("t").high_watermark == 2
        assert follower.heard() == ([(2, 0)] if is_rack_aware else [])


@pytest.mark.parametrize("is_rack_aware", [True, False])
@in_virtual_time
async def test_a_wait_ends_when_the_log_start_moves(is_rack_aware: bool) -> None:
    """Somebody may wait for the follower to forget what was deleted."""
    async with leading(is_rack_aware=is_rack_aware) as served:
        world = served.world
        follower = Follower(served)
        follower.fetch(1)
        await world.settle()
        if follower.heard():
            follower.fetch()
            await world.settle()
        assert follower.heard() == []
        await world.runner("t").delete_records(Offset(1))
        await world.settle()
        assert follower.heard() == [(1, 0)]
        follower.fetch()  # Even if it does not do as it is told, it does not ask in circles.
        await world.settle()
        assert follower.heard() == []
