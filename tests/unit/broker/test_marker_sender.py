"""D3: leaders are told how transactions ended, until they know: K1-K5 of `marker_sender.py`.

The coordinator is a real one. This broker's partitions and the other broker are the test's.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast
from uuid import uuid4

from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.far_end import FarEnd
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, led_by_us, replicated
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId, TopicId, TopicPartition
from tidelog.broker.marker_sender import RETRY_BACKOFF_MAX_S, VERSION
from tidelog.broker.peers import Peer
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.transaction_handlers import transaction_coordinator
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered, TopicCreated
from tidelog.core.controller.image import (
    BrokerImage,
    Endpoint,
    LastStop,
    PartitionImage,
    TopicImage,
)
from tidelog.core.controller.names import TRANSACTION_STATE
from tidelog.core.transactions.answers import DescribeAnswer, PartitionsAnswer, ProducerAnswer
from tidelog.core.transactions.initializing import Claim
from tidelog.wire.api import decode_request_header
from tidelog.wire.write_txn_markers import (
    MarkerResult,
    TransactionMarker,
    decode_write_txn_markers,
    encode_write_txn_markers_response,
)

OTHER_EPOCH = 20
SECONDS = 5 * RETRY_BACKOFF_MAX_S


def led_by(leader: BrokerId, epoch: int = 0) -> PartitionImage:
    return replicated(leader, epoch, isr=(BROKER, OTHER))


class Told:
    """Markers that one broker was told, and what it says to them."""

    def __init__(self) -> None:
        self.requests: list[Sequence[TransactionMarker]] = []
        self.codes: dict[int, ErrorCode] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, markers: Sequence[TransactionMarker]) -> Sequence[MarkerResult]:
        self.requests.append(markers)
        await self.gate.wait()
        return self.results(markers)

    def results(self, markers: Sequence[TransactionMarker]) -> list[MarkerResult]:
        return [
            MarkerResult(
                marker.producer_id,
                [
                    (name, [(each, self.codes.get(each, ErrorCode.NONE)) for each in numbers])
                    for name, numbers in marker.topics
                ],
            )
            for marker in markers
        ]

    @property
    def partitions(self) -> list[list[int]]:
        """Of topic `t`, by request."""
        return [
            sorted(
                each for marker in markers for _name, numbers in marker.topics for each in numbers
            )
            for markers in self.requests
        ]


class Coordinating:
    """A broker that coordinates, and another one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.here = Told()
        self.there = Told()
        self.far_end = FarEnd()
        self.coordinator = transaction_coordinator(
            world.config.transactions,
            broker_id=BROKER,
            partitions=world.partitions,
            producer_ids=ProducerIds(self._allocate, world.tasks),
            connect=self._connect,
            write_here=self.here.write,
            request_timeout_ms=5_000,
            clock=world.clock,
            hash_key=HASH_KEY,
            loop=asyncio.get_running_loop(),
            tasks=world.tasks,
        )

    async def _allocate(self) -> range:
        return range(1_000, 2_000)

    def _connect(self, broker_id: BrokerId) -> Peer | None:
        assert broker_id == OTHER
        return self.far_end.peer()

    async def begin(self, transactional_id: str, *partitions: int) -> Claim:
        """A transaction that reaches to these partitions of `t`."""
        answer = await self.coordinator.ask_with_id(
            transactional_id,
            lambda shard, token, now_ms: shard.on_init_producer_id(
                transactional_id, timeout_ms=60_000, claim=None, token=token, now_ms=now_ms
            ),
        )
        assert isinstance(answer, ProducerAnswer)
        producer = Claim(answer.producer_id, answer.producer_epoch)
        added = await self.coordinator.ask(
            transactional_id,
            lambda shard, token, now_ms: shard.on_add_partitions(
                transactional_id,
                producer=producer,
                partitions=[TopicPartition("t", number) for number in partitions],
                client_version=2,
                may_wait=False,
                token=token,
                now_ms=now_ms,
            ),
        )
        assert isinstance(added, PartitionsAnswer)
        assert set(added.codes.values()) == {ErrorCode.NONE}
        return producer

    async def commit(self, transactional_id: str, producer: Claim) -> None:
        answer = await self.coordinator.ask(
            transactional_id,
            lambda shard, token, now_ms: shard.on_end(
                transactional_id,
                producer=producer,
                is_commit=True,
                client_version=2,
                token=token,
                now_ms=now_ms,
            ),
        )
        assert isinstance(answer, ProducerAnswer)
        assert answer.code is ErrorCode.NONE
        await self.world.settle()

    async def state(self, transactional_id: str) -> str:
        answer = await self.coordinator.ask(
            transactional_id,
            lambda shard, token, _now_ms: shard.on_describe(transactional_id, token=token),
            may_write=False,
        )
        metadata = cast(DescribeAnswer, answer).metadata
        assert metadata is not None
        return metadata.state.title

    def leave(self, broker_id: BrokerId) -> None:
        """Its session has ended."""
        gone = BrokerGone(broker_id)
        self.world.decide(gone)
        self.coordinator.on_image(self.world.image, [gone])

    def hear_there(self) -> None:
        """The other broker reads what has arrived, and answers."""
        connection = self.far_end.connection
        for frame in connection.requests():
            header = decode_request_header(frame)
            markers = decode_write_txn_markers(frame, header.body_position, VERSION)
            self.there.requests.append(markers)
            answer = encode_write_txn_markers_response(
                VERSION, header.correlation_id, self.there.results(markers)
            )
            connection.send(answer)


@asynccontextmanager
async def coordinating(*states: PartitionImage) -> AsyncIterator[Coordinating]:
    """Topic `t` has these partitions."""
    async with broker_world() as world:
        coordinating = Coordinating(world)
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "other", 9092)
        world.decide(
            BrokerRegistered(BrokerImage(OTHER, OTHER_EPOCH, (endpoint,), None, LastStop.CLEAN))
        )
        world.create(TRANSACTION_STATE, state=replicated(BROKER, 0, isr=(BROKER,)))
        world.decide(TopicCreated(TopicImage("t", TopicId(uuid4()), states), {}))
        await world.settle()
        yield coordinating
        coordinating.coordinator.end()
        coordinating.here.gate.set()
        await world.settle()


@in_virtual_time
async def test_every_leader_is_told_of_its_partitions() -> None:
    async with coordinating(led_by_us(0), led_by(OTHER), led_by_us(0)) as one:
        producer = await one.begin("a", 0, 1, 2)
        await one.commit("a", producer)
        assert await one.state("a") == "PrepareCommit"
        one.hear_there()
        await one.world.settle()
        assert (one.here.partitions, one.there.partitions) == ([[0, 2]], [[1]])
        (marker,) = one.there.requests[0]
        assert marker == TransactionMarker(producer.producer_id, 1, True, [("t", [1])], 0, 2)
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_what_comes_meanwhile_goes_together() -> None:
    """K1"""
    async with coordinating(led_by_us(0)) as one:
        producers = {name: await one.begin(name, 0) for name in "abc"}
        one.here.gate.clear()
        for name, producer in producers.items():
            await one.commit(name, producer)
        assert [len(markers) for markers in one.here.requests] == [1]
        one.here.gate.set()
        await one.world.settle()
        assert [len(markers) for markers in one.here.requests] == [1, 2]
        assert {await one.state(name) for name in "abc"} == {"CompleteCommit"}


@in_virtual_time
async def test_partition_that_refuses_is_told_again() -> None:
    """K2"""
    async with coordinating(led_by_us(0), led_by_us(0)) as one:
        one.here.codes = {1: ErrorCode.NOT_ENOUGH_REPLICAS}
        await one.commit("a", await one.begin("a", 0, 1))
        assert one.here.partitions == [[0, 1]]
        await asyncio.sleep(SECONDS)
        assert one.here.partitions[1:] == [[1]] * len(one.here.partitions[1:])
        assert await one.state("a") == "PrepareCommit"
        one.here.codes.clear()
        await asyncio.sleep(SECONDS)
        assert await one.state("a") == "CompleteCommit"
        asked = len(one.here.requests)
        assert 8 < asked < 20  # Not all the time.
        await asyncio.sleep(SECONDS)
        assert len(one.here.requests) == asked


@in_virtual_time
async def test_whoever_leads_next_is_told() -> None:
    """K2"""
    async with coordinating(led_by(OTHER)) as one:
        one.there.codes = {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await one.commit("a", await one.begin("a", 0))
        one.hear_there()
        one.world.change("t", led_by_us(1))
        await asyncio.sleep(SECONDS)
        assert one.here.partitions == [[0]]
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_broker_that_does_not_answer_is_asked_over_a_new_connection() -> None:
    """K2"""
    async with coordinating(led_by(OTHER)) as one:
        one.far_end.is_refusing = True
        await one.commit("a", await one.begin("a", 0))
        await asyncio.sleep(SECONDS)
        one.far_end.is_refusing = False
        await asyncio.sleep(SECONDS)
        one.far_end.connection.close()
        await asyncio.sleep(SECONDS)
        one.hear_there()
        await one.world.settle()
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_who_leads_instead_of_a_broker_that_hung_is_told_at_once() -> None:
    """K5. It keeps its connections and says nothing, until its session ends."""
    async with coordinating(led_by(OTHER)) as one:
        await one.commit("a", await one.begin("a", 0))
        assert one.far_end.connection.requests()
        one.leave(OTHER)
        one.world.change("t", led_by_us(1))
        await asyncio.sleep(RETRY_BACKOFF_MAX_S)
        assert one.far_end.connection.is_closed
        assert one.here.partitions == [[0]]
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_broker_whose_host_is_gone_is_not_waited_for_either() -> None:
    """K5"""
    async with coordinating(led_by(OTHER)) as one:
        one.far_end.is_silent = True
        await one.commit("a", await one.begin("a", 0))
        assert one.far_end.attempts == 1
        one.leave(OTHER)
        one.world.change("t", led_by_us(1))
        await asyncio.sleep(RETRY_BACKOFF_MAX_S)
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_partition_without_a_leader_is_told_when_it_has_one() -> None:
    """K2"""
    async with coordinating(led_by(OTHER)) as one:
        producer = await one.begin("a", 0)
        one.world.change("t", led_by(NO_BROKER, 1))
        await one.commit("a", producer)
        await asyncio.sleep(SECONDS)
        one.world.change("t", led_by(OTHER, 2))
        one.world.decide(BrokerGone(OTHER))
        await asyncio.sleep(SECONDS)
        assert one.far_end.attempts == 0
        one.world.change("t", led_by_us(3))
        await asyncio.sleep(SECONDS)
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_partition_that_is_gone_needs_no_marker() -> None:
    """K2"""
    async with coordinating(led_by_us(0), led_by_us(0)) as one:
        one.here.codes = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await one.commit("a", await one.begin("a", 0))
        await asyncio.sleep(SECONDS)
        assert await one.state("a") == "PrepareCommit"
        one.world.delete("t")
        await asyncio.sleep(SECONDS)
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_leader_with_a_newer_epoch_knows_enough() -> None:
    async with coordinating(led_by_us(0)) as one:
        one.here.codes = {0: ErrorCode.INVALID_PRODUCER_EPOCH}
        await one.commit("a", await one.begin("a", 0))
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_coordinator_that_is_none_any_more_tells_nobody() -> None:
    """K3"""
    async with coordinating(led_by_us(0)) as one:
        one.here.codes = {0: ErrorCode.NOT_ENOUGH_REPLICAS}
        await one.commit("a", await one.begin("a", 0))
        one.world.change(TRANSACTION_STATE, led_by(OTHER, 1))
        await one.world.settle()
        asked = len(one.here.requests)
        await asyncio.sleep(SECONDS)
        assert len(one.here.requests) == asked


@in_virtual_time
async def test_next_coordinator_tells_in_its_own_name() -> None:
    """K3, T4"""
    async with coordinating(led_by_us(0)) as one:
        one.here.codes = {0: ErrorCode.NOT_ENOUGH_REPLICAS}
        await one.commit("a", await one.begin("a", 0))
        one.world.elect(TRANSACTION_STATE)
        await one.world.settle()
        one.here.requests.clear()
        await asyncio.sleep(SECONDS)
        epochs = {marker.coordinator_epoch for markers in one.here.requests for marker in markers}
        assert epochs == {1}
        one.here.codes.clear()
        await asyncio.sleep(SECONDS)
        assert await one.state("a") == "CompleteCommit"


@in_virtual_time
async def test_shard_that_cannot_write_is_told_later() -> None:
    """K4"""
    async with coordinating(led_by_us(0)) as one:
        one.here.gate.clear()
        await one.commit("a", await one.begin("a", 0))
        one.world.configure(TRANSACTION_STATE, {"min.insync.replicas": "2"})
        await one.world.settle()
        one.here.gate.set()
        await asyncio.sleep(SECONDS)
        assert await one.state("a") == "PrepareCommit"
        one.world.configure(TRANSACTION_STATE, {})
        await asyncio.sleep(SECONDS)
        assert await one.state("a") == "CompleteCommit"
        assert one.here.partitions == [[0]]
