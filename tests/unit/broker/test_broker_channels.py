"""What a controller tells brokers: once, in one request of a kind, until it is heard (C4)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.histories import History, without_claims
from tests.unit.broker.simulated_loop import SimulatedLoop, in_virtual_time
from tests.unit.core.controller.clusters import broker, brokers, cluster, partition, topic
from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ids import BrokerId, ControllerEpoch, TopicPartition
from tidelog.broker import cluster_messages as messages
from tidelog.broker.broker_channels import (
    RETRY_BACKOFF_MAX_S,
    RETRY_BACKOFF_S,
    BrokerChannels,
    Speaker,
    Told,
)
from tidelog.broker.peers import PeerUnreachable
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ClientConfigChanged,
    ClusterNamed,
    GroupConfigChanged,
    PartitionChanged,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.image import EMPTY_IMAGE, BrokerImage, ClusterImage, PartitionImage
from tidelog.wire.cluster_states import FailedPartition
from tidelog.wire.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.wire.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

SPEAKER = Speaker(BrokerId(1), ControllerEpoch(4), b"sixteen bytes!!!")
Request = UpdateMetadataRequest | LeaderAndIsrRequest | StopReplicaRequest


class Hearer:
    """A broker that hears its controller: it does as it is told, or fails as the test wants."""

    def __init__(self, registered: BrokerImage) -> None:
        self.registered = registered
        self.image = EMPTY_IMAGE.apply(ClusterNamed("cluster"))
        self.roles: dict[tuple[bytes, int], PartitionImage] = {}
        self.heard: list[Request] = []
        self.failed: list[FailedPartition] = []
        self.code = ErrorCode.NONE
        self.error: Callable[[], Exception | None] = lambda: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.role_gate = asyncio.Event()
        self.role_gate.set()
        self.is_closed = False

    async def _hear(self, request: Request) -> None:
        assert not self.is_closed
        header = request.header
        assert header == (1, 4, self.registered.broker_epoch, SPEAKER.token)
        self.heard.append(request)
        await self.gate.wait()
        error = self.error()
        if error is not None:
            raise error

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self.image = self.image.apply_all(messages.changes_from(self.image, request))
        await self._hear(request)
        return UpdateMetadataResponse(self.code)

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        for one, (topic_id, state) in messages.partitions_of(request.topics):
            assert self.registered.broker_id in state.replicas
            self.roles[topic_id.bytes, one.partition] = state
        await self._hear(request)
        await self.role_gate.wait()
        return LeaderAndIsrResponse(self.code, self.failed)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        for one in request.partitions:
            self.roles.pop((one.topic_id, one.partition), None)
        await self._hear(request)
        return StopReplicaResponse(self.code, [])

    def close(self) -> None:
        self.is_closed = True

    def take(self) -> list[Request]:
        heard, self.heard = self.heard, []
        return heard


class Channelled:
    """A controller's channels, and who is at their ends."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.hearers: dict[BrokerId, Hearer] = {}
        self.told: list[Told] = []
        self.successions: list[ErrorCode] = []
        self.channels = BrokerChannels(
            connect=self.connect,
            on_told=self.told.append,
            on_succeeded=self.successions.append,
            tasks=tasks,
        )
        self.image = cluster({})

    def connect(self, registered: BrokerImage) -> Hearer:
        hearer = Hearer(registered)
        self.hearers[registered.broker_id] = hearer
        return hearer

    def start(self, image: ClusterImage) -> None:
        self.image = image
        self.channels.start(SPEAKER, image)

    def publish(self, *changes: Change) -> None:
        before, self.image = self.image, self.image.apply_all(changes)
        self.channels.on_published(before, self.image, changes)

    def __getitem__(self, number: int) -> Hearer:
        return self.hearers[BrokerId(number)]


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@asynccontextmanager
async def channelled(image: ClusterImage) -> AsyncIterator[Channelled]:
    """Channels to all brokers of `image`, which have been told everything."""
    async with asyncio.TaskGroup() as tasks:
        all_of_them = Channelled(tasks)
        all_of_them.start(image)
        await settled()
        for hearer in all_of_them.hearers.values():
            hearer.take()
        all_of_them.told.clear()
        yield all_of_them
        all_of_them.channels.stop()
        await settled()
        assert all(hearer.is_closed for hearer in all_of_them.hearers.values())


def many(name: str, number: int, *replicas: int, count: int = 50) -> TopicCreated:
    return TopicCreated(topic(name, number, *([partition(*replicas)] * count)), {})


def kinds(requests: list[Request]) -> list[type]:
    return [type(one) for one in requests]


def of_kind(requests: list[Request], kind: type) -> Request:
    (found,) = [one for one in requests if type(one) is kind]
    return found


def named(request: Request) -> dict[str, list[int]]:
    assert isinstance(request, UpdateMetadataRequest | LeaderAndIsrRequest)
    return {one.name: [state.partition for state in one.partitions] for one in request.topics}


# -- one event -----------------------------------------------------------------------------------


@in_virtual_time
async def test_a_new_controller_tells_everybody_everything() -> None:
    async with asyncio.TaskGroup() as tasks:
        channels = Channelled(tasks)
        channels.start(cluster(brokers(1, 2), topic("t", 7, partition(1, 2), partition(2))))
        await settled()
        for number, holds in ((1, [0]), (2, [0, 1])):
            update, roles = channels[number].take()
            assert isinstance(update, UpdateMetadataRequest)
            assert isinstance(roles, LeaderAndIsrRequest)
            assert (update.is_full, roles.is_full) == (True, True)
            assert named(update) == {"t": [0, 1]}
            assert named(roles) == {"t": holds}
            assert roles.live_brokers == [(1, 1), (2, 1)]
        channels.channels.stop()


@in_virtual_time
async def test_an_event_is_one_request_of_a_kind_however_many_partitions_it_has() -> None:
    async with channelled(cluster(brokers(1, 2, 3))) as channels:
        channels.publish(many("t", 7, 1, 2), many("u", 8, 2))
        await settled()
        everything = {"t": list(range(50)), "u": list(range(50))}
        for number, roles in ((1, {"t": list(range(50))}), (2, everything), (3, None)):
            heard = channels[number].take()
            assert named(of_kind(heard, UpdateMetadataRequest)) == everything
            assert not of_kind(heard, UpdateMetadataRequest).is_full  # type: ignore[union-attr]
            if roles is None:
                assert kinds(heard) == [UpdateMetadataRequest]
            else:
                assert kinds(heard) == [UpdateMetadataRequest, LeaderAndIsrRequest]
                assert named(heard[1]) == roles


@in_virtual_time
async def test_a_broker_that_is_gone_is_one_request_to_each_of_the_others() -> None:
    before = cluster(brokers(1, 2, 3), topic("t", 7, *[partition(3, 1, 2)] * 40))
    async with channelled(before) as channels:
        moved = partition(3, 1, 2, leader=1, isr=(1, 2), epoch=1)
        channels.publish(
            BrokerGone(BrokerId(3)), *(PartitionChanged("t", each, moved) for each in range(40))
        )
        await settled()
        for number in (1, 2):
            update, roles = channels[number].take()
            assert named(update) == named(roles) == {"t": list(range(40))}
            assert isinstance(roles, LeaderAndIsrRequest)
            assert roles.live_brokers == [(1, 1), (2, 1)]
        assert channels[3].is_closed
        assert channels[3].take() == []


@pytest.mark.parametrize(
    ("change", "entity"),
    [
        (TopicConfigChanged("t", {"flush.ms": "1"}), (0, "t")),
        (BrokerConfigChanged(BrokerId(2), {"a": "b"}), (1, "2")),
        (BrokerConfigChanged(None, {"a": "b"}), (1, "<default>")),
        (ClientConfigChanged("c", {"a": "b"}), (2, "c")),
        (GroupConfigChanged("g", {"a": "b"}), (3, "g")),
    ],
)
@in_virtual_time
async def test_settings_are_told_to_everybody(change: Change, entity: tuple[int, str]) -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7))) as channels:
        channels.publish(change)
        await settled()
        for number in (1, 2):
            (update,) = channels[number].take()
            assert isinstance(update, UpdateMetadataRequest)
            (found,) = update.settings
            assert found.name == entity[1]
            assert without_claims(channels[number].image) == without_claims(channels.image)


@in_virtual_time
async def test_a_replica_that_was_taken_away_is_stopped() -> None:
    async with channelled(cluster(brokers(1, 2, 3), topic("t", 7, partition(1, 2)))) as channels:
        channels.publish(PartitionChanged("t", 0, partition(1, 3, epoch=1)))
        await settled()
        _update, stop = channels[2].take()
        assert isinstance(stop, StopReplicaRequest)
        (stopped,) = stop.partitions
        assert stopped == ("t", channels.image.topics["t"].topic_id.bytes, 0, 1, True)
        assert channels[2].roles == {}
        assert kinds(channels[3].take()) == [UpdateMetadataRequest, LeaderAndIsrRequest]


@in_virtual_time
async def test_a_replica_that_was_taken_away_and_given_back_is_not_stopped() -> None:
    async with channelled(cluster(brokers(1, 2, 3), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].gate.clear()
        channels.publish(PartitionChanged("t", 0, partition(1, 2, epoch=1)))
        await settled()
        channels.publish(PartitionChanged("t", 0, partition(1, 3, epoch=2)))
        channels.publish(PartitionChanged("t", 0, partition(1, 2, epoch=3)))
        channels[2].take()
        channels[2].gate.set()
        await settled()
        assert kinds(channels[2].take()) == [UpdateMetadataRequest, LeaderAndIsrRequest]


@in_virtual_time
async def test_a_deleted_topic_is_stopped_and_forgotten() -> None:
    image = cluster(brokers(1, 2), topic("t", 7, partition(1), partition(1)))
    async with channelled(image) as channels:
        topic_id = image.topics["t"].topic_id
        channels.publish(TopicDeleted("t", topic_id))
        await settled()
        update, stop = channels[1].take()
        assert isinstance(update, UpdateMetadataRequest)
        assert update.deleted_topics == [topic_id.bytes]
        assert isinstance(stop, StopReplicaRequest)
        assert [one.partition for one in stop.partitions] == [0, 1]
        assert kinds(channels[2].take()) == [UpdateMetadataRequest]


# -- slow and deaf brokers -----------------------------------------------------------------------


@in_virtual_time
async def test_a_slow_broker_hears_the_newest_state_once() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].gate.clear()
        channels.publish(PartitionChanged("t", 0, partition(1, 2, epoch=1)))
        await settled()
        channels[2].take()
        for epoch in range(2, 30):
            channels.publish(PartitionChanged("t", 0, partition(1, 2, epoch=epoch)))
            channels.publish(TopicConfigChanged("t", {"flush.ms": str(epoch)}))
            await settled()
        channels.publish(many("u", 8, 2))
        await settled()
        assert channels[2].take() == []
        assert len(channels[1].take()) > 50
        channels[2].gate.set()
        await settled()
        update, roles = channels[2].take()
        assert named(update) == named(roles) == {"t": [0], "u": list(range(50))}
        assert channels[2].roles[UUID(int=7).bytes, 0].leader_epoch == 29
        assert without_claims(channels[2].image) == without_claims(channels.image)


@pytest.mark.parametrize("error", [PeerUnreachable("test"), WireError("test")])
@in_virtual_time
async def test_what_was_not_answered_is_told_again_with_what_has_come_since(
    error: Exception,
) -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].error = lambda: error
        channels.publish(
            PartitionChanged("t", 0, partition(1, 2, epoch=1)),
            BrokerConfigChanged(None, {"a": "b"}),
        )
        await settled()
        channels[2].take()
        channels.publish(many("u", 8, 2))
        await settled()
        assert channels[2].take() == []
        channels[2].error = lambda: None
        await asyncio.sleep(RETRY_BACKOFF_S)
        await settled()
        update, roles = channels[2].take()
        assert isinstance(update, UpdateMetadataRequest)
        assert named(update) == named(roles) == {"t": [0], "u": list(range(50))}
        assert [one.name for one in update.settings] == ["<default>"]
        assert not update.is_full


@in_virtual_time
async def test_a_topic_made_again_with_less_while_a_broker_was_deaf_is_what_it_is_now() -> None:
    image = cluster(brokers(1, 2), topic("t", 7, partition(1, 2), partition(2), partition(2)))
    async with channelled(image) as channels:
        channels[2].gate.clear()
        channels[2].error = lambda: PeerUnreachable("test")
        channels.publish(*(PartitionChanged("t", one, partition(2, 1, epoch=1)) for one in (0, 2)))
        await settled()
        channels.publish(TopicDeleted("t", image.topics["t"].topic_id))
        channels.publish(TopicCreated(topic("t", 8, partition(1), partition(2)), {}))
        channels[2].gate.set()
        await settled()
        channels[2].take()
        channels[2].error = lambda: None
        await asyncio.sleep(RETRY_BACKOFF_S)
        await settled()
        update, roles, stop = channels[2].take()
        assert named(update) == {"t": [0, 1]}
        assert named(roles) == {"t": [1]}
        assert isinstance(stop, StopReplicaRequest)
        assert {one.topic_id for one in stop.partitions} == {image.topics["t"].topic_id.bytes}


@in_virtual_time
async def test_two_topics_of_one_name_that_come_and_go_are_both_stopped() -> None:
    image = cluster(brokers(1, 2), topic("t", 7, partition(2)))
    async with channelled(image) as channels:
        channels[2].gate.clear()
        channels.publish(TopicDeleted("t", image.topics["t"].topic_id))
        later = topic("t", 8, partition(2))
        channels.publish(TopicCreated(later, {}))
        channels.publish(TopicDeleted("t", later.topic_id))
        channels[2].take()
        channels[2].gate.set()
        await settled()
        stop = channels[2].take()[-1]
        assert isinstance(stop, StopReplicaRequest)
        assert {one.topic_id for one in stop.partitions} == {
            image.topics["t"].topic_id.bytes,
            later.topic_id.bytes,
        }
        assert channels[2].roles == {}


@in_virtual_time
async def test_a_deaf_broker_is_tried_less_and_less_often_and_holds_up_nobody() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].error = lambda: PeerUnreachable("test")
        channels.publish(TopicConfigChanged("t", {"a": "b"}))
        await settled()
        assert len(channels[1].take()) == 1
        await asyncio.sleep(60)
        rounds = len(channels[2].take())
        assert 60 / RETRY_BACKOFF_MAX_S <= rounds <= 60 / RETRY_BACKOFF_MAX_S + 6
        channels[2].error = lambda: None
        await asyncio.sleep(RETRY_BACKOFF_MAX_S)
        assert len(channels[2].take()) == 1
        await asyncio.sleep(60)
        assert channels[2].take() == []


@in_virtual_time
async def test_a_broker_that_has_missed_something_is_told_everything() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].code = ErrorCode.INVALID_REQUEST
        channels.publish(TopicConfigChanged("t", {"a": "b"}))
        await settled()
        channels[2].take()
        channels[2].code = ErrorCode.NONE
        await asyncio.sleep(RETRY_BACKOFF_S)
        await settled()
        update, roles = channels[2].take()
        assert isinstance(update, UpdateMetadataRequest)
        assert update.is_full
        assert named(update) == named(roles) == {"t": [0]}
        assert [one.name for one in update.settings] == ["t"]


@in_virtual_time
async def test_a_broker_that_knows_a_newer_controller_is_believed() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        for code, successions in (
            (ErrorCode.STALE_BROKER_EPOCH, []),
            (ErrorCode.STALE_CONTROLLER_EPOCH, [ErrorCode.STALE_CONTROLLER_EPOCH]),
        ):
            channels[2].code = code
            channels.publish(TopicConfigChanged("t", {"a": code.name}))
            await asyncio.sleep(RETRY_BACKOFF_MAX_S)
            assert channels.successions[:1] == successions


# -- lives of brokers ----------------------------------------------------------------------------


@in_virtual_time
async def test_a_new_registration_is_told_everything_on_a_channel_of_its_own() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        first = channels[2]
        first.gate.clear()
        channels.publish(TopicConfigChanged("t", {"a": "b"}))
        await settled()
        channels.publish(BrokerRegistered(broker(2, broker_epoch=9)))
        await settled()
        assert first.is_closed
        assert channels[2] is not first
        update, roles = channels[2].take()
        assert isinstance(update, UpdateMetadataRequest)
        assert update.is_full
        assert update.header.broker_epoch == 9
        assert named(roles) == {"t": [0]}
        (_, news) = channels[1].take()
        assert isinstance(news, UpdateMetadataRequest)
        assert [one.broker_epoch for one in news.live_brokers] == [1, 9]


@in_virtual_time
async def test_who_is_not_controller_any_more_says_nothing() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].gate.clear()
        channels.publish(TopicConfigChanged("t", {"a": "b"}))
        await settled()
        channels.channels.stop()
        channels[2].take()
        channels[2].gate.set()
        channels.publish(TopicConfigChanged("t", {"a": "c"}))
        channels.channels.repeat_roles(BrokerId(2))
        await asyncio.sleep(60)
        assert channels[2].take() == []
        assert channels[2].is_closed
        channels.start(channels.image)
        await settled()
        assert len(channels[2].take()) == 2


# -- what comes back -----------------------------------------------------------------------------


@in_virtual_time
async def test_what_brokers_cannot_do_is_told_and_asked_again() -> None:
    image = cluster(brokers(1, 2), topic("t", 7, partition(2), partition(1, 2), partition(1)))
    async with channelled(image) as channels:
        topic_id = image.topics["t"].topic_id.bytes
        channels[2].failed = [
            FailedPartition(topic_id, 1, ErrorCode.KAFKA_STORAGE_ERROR),
            FailedPartition(bytes(16), 0, ErrorCode.KAFKA_STORAGE_ERROR),
        ]
        channels.channels.repeat_roles(BrokerId(2))
        channels.channels.repeat_roles(BrokerId(9))
        await settled()
        update, roles = channels[2].take()
        assert (named(update), named(roles)) == ({}, {"t": [0, 1]})
        working = frozenset({TopicPartition("t", 0)})
        assert channels.told == [Told(BrokerId(2), working, frozenset({TopicPartition("t", 1)}))]
        assert channels[1].take() == []


@in_virtual_time
async def test_delivered_waits_for_those_who_answer_and_for_others_only_so_long() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        await channels.channels.delivered(1.0)
        channels[2].gate.clear()
        channels.publish(TopicConfigChanged("t", {"a": "b"}))
        waiting = asyncio.create_task(channels.channels.delivered(1.0))
        await settled()
        assert not waiting.done()
        channels[2].gate.set()
        await settled()
        assert waiting.done()
        loop = asyncio.get_running_loop()
        channels[2].gate.clear()
        channels.publish(TopicConfigChanged("t", {"a": "c"}))
        before = loop.time()
        await channels.channels.delivered(1.0)
        assert loop.time() == pytest.approx(before + 1)
        channels[2].gate.set()
        await settled()
        channels[2].error = lambda: PeerUnreachable("test")
        channels.publish(TopicConfigChanged("t", {"a": "d"}))
        before = loop.time()
        await channels.channels.delivered(1.0)
        assert loop.time() == pytest.approx(before)  # It does not answer; who knows if it lives.


@in_virtual_time
async def test_what_is_known_is_not_always_done() -> None:
    """Opening very many logs takes its time."""
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].role_gate.clear()
        channels.publish(PartitionChanged("t", 0, partition(2, 1, epoch=1)))
        loop = asyncio.get_running_loop()
        before = loop.time()
        await channels.channels.known(1.0)
        assert loop.time() == pytest.approx(before)
        assert without_claims(channels[2].image) == without_claims(channels.image)
        await channels.channels.delivered(1.0)
        assert loop.time() == pytest.approx(before + 1)
        channels[2].role_gate.set()
        await channels.channels.delivered(1.0)
        assert loop.time() == pytest.approx(before + 1)


@in_virtual_time
async def test_delivered_does_not_wait_for_who_is_gone() -> None:
    async with channelled(cluster(brokers(1, 2), topic("t", 7, partition(1, 2)))) as channels:
        channels[2].gate.clear()
        channels.publish(TopicConfigChanged("t", {"a": "b"}))
        waiting = asyncio.create_task(channels.channels.delivered(60.0))
        await settled()
        channels.publish(BrokerGone(BrokerId(2)))
        await settled()
        assert waiting.done()


# -- any history ---------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_whatever_fails_everybody_knows_everything_in_the_end(chance: Random, count: int) -> None:
    async def story() -> None:
        async with asyncio.TaskGroup() as tasks:
            channels = Channelled(tasks)
            history = History(chance)
            channels.start(history.image)
            for _ in range(count):
                before = history.image
                changes = history.happen()
                channels.image = history.image
                channels.channels.on_published(before, history.image, changes)
                for hearer in channels.hearers.values():
                    _disturb(hearer, chance)
                await asyncio.sleep(chance.choice((0, 0, 0.05, 1)))
            for hearer in channels.hearers.values():
                hearer.gate.set()
                hearer.error = lambda: None
            await asyncio.sleep(60)
            for broker_id, hearer in channels.hearers.items():
                if broker_id in history.image.brokers:
                    _check(history.image, hearer)
            channels.channels.stop()

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())


def _disturb(hearer: Hearer, chance: Random) -> None:
    if chance.random() < 0.3:
        hearer.gate.clear()
    else:
        hearer.gate.set()
    fails = chance.random() < 0.3
    hearer.error = lambda: PeerUnreachable("test") if fails else None


def _check(image: ClusterImage, hearer: Hearer) -> None:
    me = hearer.registered.broker_id
    assert without_claims(hearer.image) == without_claims(image)
    assert hearer.roles == {
        (one.topic_id.bytes, number): state
        for one in image.topics.values()
        for number, state in enumerate(one.partitions)
        if me in state.replicas
    }


@pytest.mark.parametrize("turns", range(8))
@in_virtual_time
async def test_a_channel_that_is_stopped_while_a_request_fails_ends(turns: int) -> None:
    """Its cancellation may be lost behind the failure, in one turn of the loop among others."""
    async with asyncio.TaskGroup() as tasks:
        channelled = Channelled(tasks)
        channelled.start(cluster(brokers(1, 2), topic("t", 7, partition(1, 2))))
        hearer = channelled[2]
        hearer.gate.clear()
        hearer.role_gate.clear()
        await settled()
        errors = iter([PeerUnreachable("gone")])  # The other request is under way.
        hearer.error = lambda: next(errors, None)
        hearer.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        channelled.channels.stop()
        await settled()
        assert hearer.is_closed
