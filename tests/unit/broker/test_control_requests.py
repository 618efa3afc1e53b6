"""What a controller tells a broker: only it, only to this life of it, one after the other (C3)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode, SessionLost, StorageError
from tidelog.base.ids import BrokerId, ControllerEpoch, TopicId
from tidelog.broker import cluster_messages as messages
from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.controlled_brokers import LocalBroker
from tidelog.broker.large_requests import LARGE_COUNT, PARTS_PER_TURN, Aside
from tidelog.coordination.port import CoordinatorUnavailable
from tidelog.core.controller.changes import Change, TopicConfigChanged, TopicCreated
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from tidelog.core.controller.nodes import ControllerClaim
from tidelog.wire.cluster_states import ControlHeader, TopicStates
from tidelog.wire.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.stop_replica import StoppedReplica, StopReplicaRequest
from tidelog.wire.update_metadata import UpdateMetadataRequest

TOKEN = b"sixteen bytes..."
CLAIM = ControllerClaim(OTHER, ControllerEpoch(5), TOKEN)
BROKER_EPOCH = 1
GOOD = ControlHeader(OTHER, 5, BROKER_EPOCH, TOKEN)
TOPIC_ID = TopicId(UUID(int=7))


class Membership:
    """What a broker knows of the claims, and what the coordinator does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.claim = CLAIM
        self.stored = CLAIM
        self.broker_epoch = BROKER_EPOCH
        self.aside = Aside()
        self.failure: Exception | None = None
        self.look_ups = 0

    @property
    def image(self) -> ClusterImage:
        return self._world.image

    async def look_up_claim(self) -> ControllerClaim:
        self.look_ups += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.claim = self.stored
        return self.claim

    def follow(self, changes: Sequence[Change]) -> None:
        """Without roles: those come by the other request."""
        self._world.image = self._world.image.apply_all(changes)
        self._world.replicas.on_image(self._world.image, changes)


class Controlled:
    """A broker and its ear for the controller."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.membership = Membership(world)
        self.requests = ControlRequests(self.membership, world.replicas)

    def know(self, state: PartitionImage) -> None:
        """A topic with one partition, of which nobody has got a role yet."""
        self.membership.follow([TopicCreated(TopicImage("t", TOPIC_ID, (state,)), {})])

    def update(self, header: ControlHeader = GOOD) -> UpdateMetadataRequest:
        brokers = messages.live_brokers(self.world.image)
        topics = states(replicated(BROKER, 0))
        return UpdateMetadataRequest(header, False, brokers, topics, [], [], [])


def states(state: PartitionImage) -> list[TopicStates]:
    """A topic with one partition, in the controller's words."""
    created = TopicCreated(TopicImage("t", TOPIC_ID, (state,)), {})
    return messages.topic_states(EMPTY_IMAGE.apply(created), {"t": [0]})


def roles(state: PartitionImage, header: ControlHeader = GOOD) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        header,
        False,
        [(BROKER, BROKER_EPOCH), (OTHER, 20)],
        states(state),
    )


def stop(epoch: int, header: ControlHeader = GOOD) -> StopReplicaRequest:
    return StopReplicaRequest(header, [StoppedReplica("t", TOPIC_ID.bytes, 0, epoch, True)])


@asynccontextmanager
async def controlled() -> AsyncIterator[Controlled]:
    async with broker_world() as world:
        yield Controlled(world)


# -- who may speak -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (GOOD._replace(controller_epoch=4), ErrorCode.STALE_CONTROLLER_EPOCH),
        (GOOD._replace(broker_epoch=0), ErrorCode.STALE_BROKER_EPOCH),
        (GOOD._replace(broker_epoch=2), ErrorCode.STALE_BROKER_EPOCH),
        (GOOD._replace(token=bytes(16)), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (GOOD._replace(controller_id=3), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (GOOD._replace(controller_epoch=6), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
@in_virtual_time
async def test_nobody_else_is_heard(header: ControlHeader, code: ErrorCode) -> None:
    async with controlled() as broker:
        broker.know(replicated(BROKER, 0))
        await broker.world.settle()
        await broker.requests.leader_and_isr(roles(replicated(BROKER, 0)))
        broker.world.produce("t", plain_batch(1))
        image = broker.world.image
        requests = broker.requests
        assert (await requests.update_metadata(broker.update(header))).error_code == code
        told = await requests.leader_and_isr(roles(replicated(OTHER, 1), header))
        assert (told.error_code, told.partitions) == (code, [])
        assert (await requests.stop_replica(stop(9, header))).error_code == code
        assert broker.world.image is image
        assert broker.world.runner("t").leading.leader_epoch == 0


@in_virtual_time
async def test_a_controller_that_is_not_known_yet_is_looked_up_once() -> None:
    async with controlled() as broker:
        newer = ControllerClaim(BrokerId(3), ControllerEpoch(6), b"another token...")
        broker.membership.stored = newer
        header = ControlHeader(3, 6, BROKER_EPOCH, newer.token)
        assert (await broker.requests.update_metadata(broker.update(header))).error_code == 0
        told = await broker.requests.leader_and_isr(roles(replicated(BROKER, 0), header))
        assert told.error_code == 0
        assert broker.membership.look_ups == 1
        assert broker.world.image.controller_id == 3
        late = await broker.requests.leader_and_isr(roles(replicated(OTHER, 1)))
        assert late.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("failure", [CoordinatorUnavailable("test"), SessionLost("test")])
@in_virtual_time
async def test_a_controller_that_cannot_be_looked_up_has_to_try_again(failure: Exception) -> None:
    async with controlled() as broker:
        broker.membership.failure = failure
        header = GOOD._replace(controller_epoch=6)
        told = await broker.requests.leader_and_isr(roles(replicated(BROKER, 0), header))
        assert told.error_code == ErrorCode.BROKER_NOT_AVAILABLE


@in_virtual_time
async def test_a_broker_without_a_registration_hears_nobody() -> None:
    async with controlled() as broker:
        broker.membership.broker_epoch = -1
        for header in (GOOD, GOOD._replace(broker_epoch=0)):
            told = await broker.requests.leader_and_isr(roles(replicated(BROKER, 0), header))
            assert told.error_code == ErrorCode.STALE_BROKER_EPOCH


# -- what is said --------------------------------------------------------------------------------


@in_virtual_time
async def test_metadata_opens_logs_and_only_roles_make_leaders() -> None:
    async with controlled() as broker:
        assert (await broker.requests.update_metadata(broker.update())).error_code == 0
        await broker.world.settle()
        runner = broker.world.runner("t")
        assert (runner.leader, runner.follower) == (None, None)
        told = await broker.requests.leader_and_isr(roles(replicated(BROKER, 3)))
        assert told == (ErrorCode.NONE, [])
        assert runner.leading.leader_epoch == 3
        assert runner.leading.live_brokers == {BROKER: BROKER_EPOCH, OTHER: 20}
        assert (await broker.requests.stop_replica(stop(3))).error_code == 0
        assert broker.world.partitions.find("t", 0) is None
        await broker.world.settle()


@in_virtual_time
async def test_metadata_that_cannot_follow_is_refused_and_changes_nothing() -> None:
    async with controlled() as broker:
        image = broker.world.image
        request = broker.update()
        second = request.topics[0].partitions[0]._replace(partition=1)
        gap = [TopicStates("t", TOPIC_ID.bytes, [second])]
        told = await broker.requests.update_metadata(request._replace(topics=gap))
        assert told.error_code == ErrorCode.INVALID_REQUEST
        assert broker.world.image is image


@pytest.mark.parametrize("failure", [CoordinatorUnavailable("test"), SessionLost("test")])
@in_virtual_time
async def test_roles_are_not_taken_without_the_metadata_that_came_before(
    failure: Exception,
) -> None:
    """Both are sent in one go, and only the first meets a coordinator that does not answer. Who
    coordinates transactions would take topics that it has not heard of for deleted."""
    async with controlled() as broker:
        broker.know(replicated(BROKER, 0))
        await broker.world.settle()
        requests, membership = broker.requests, broker.membership
        membership.stored = replace(CLAIM, controller_epoch=ControllerEpoch(6))
        header = GOOD._replace(controller_epoch=6)
        membership.failure = failure
        updated = await requests.update_metadata(broker.update(header))
        assert updated.error_code == ErrorCode.BROKER_NOT_AVAILABLE
        membership.failure = None
        told = await requests.leader_and_isr(roles(replicated(BROKER, 0), header))
        assert told == (ErrorCode.BROKER_NOT_AVAILABLE, [])
        assert broker.world.runner("t").leader is None
        assert (await requests.update_metadata(broker.update(header))).error_code == 0
        told = await requests.leader_and_isr(roles(replicated(BROKER, 0), header))
        assert told == (ErrorCode.NONE, [])
        assert broker.world.runner("t").leading.leader_epoch == 0


@in_virtual_time
async def test_metadata_of_who_may_not_speak_keeps_no_role_back() -> None:
    async with controlled() as broker:
        broker.know(replicated(BROKER, 0))
        await broker.world.settle()
        stranger = GOOD._replace(token=bytes(16))
        assert (await broker.requests.update_metadata(broker.update(stranger))).error_code != 0
        told = await broker.requests.leader_and_isr(roles(replicated(BROKER, 0)))
        assert told == (ErrorCode.NONE, [])


@in_virtual_time
async def test_roles_that_cannot_be_are_refused() -> None:
    async with controlled() as broker:
        request = roles(replicated(BROKER, 0))
        state = request.topics[0].partitions[0]._replace(isr=(9,))
        wrong = request._replace(topics=[TopicStates("t", TOPIC_ID.bytes, [state])])
        told = await broker.requests.leader_and_isr(wrong)
        assert told.error_code == ErrorCode.INVALID_REQUEST


@in_virtual_time
async def test_replicas_that_cannot_work_are_named() -> None:
    async with controlled() as broker:
        broker.world.log_dir.on_failure(StorageError("test"))
        await broker.requests.update_metadata(broker.update())
        await broker.world.settle()
        told = await broker.requests.leader_and_isr(roles(replicated(BROKER, 3)))
        assert told.error_code == 0
        assert told.partitions == [(TOPIC_ID.bytes, 0, ErrorCode.KAFKA_STORAGE_ERROR)]


@in_virtual_time
async def test_requests_take_effect_in_the_order_in_which_they_came() -> None:
    """Also while an earlier one waits for a disk or for the coordinator."""
    async with controlled() as broker:
        world, requests = broker.world, broker.requests
        world.executor.hold(URGENT)
        done: list[str] = []

        def begin(name: str, request: Coroutine[None, None, object]) -> None:
            task = world.tasks.create_task(request)
            task.add_done_callback(lambda _: done.append(name))

        begin("known", requests.update_metadata(broker.update()))
        begin("led", requests.leader_and_isr(roles(replicated(BROKER, 3))))
        begin("stopped", requests.stop_replica(stop(3)))
        await world.settle()
        assert done == ["known"]
        world.executor.release(URGENT)
        await world.settle()
        assert done == ["known", "led", "stopped"]
        assert world.partitions.find("t", 0) is None


@in_virtual_time
async def test_the_controllers_own_broker_hears_the_same_without_a_connection() -> None:
    async with controlled() as broker:
        local = LocalBroker(broker.requests)
        image = broker.world.image
        assert (await local.update_metadata(broker.update())).error_code == 0
        assert broker.world.image is image  # The controller publishes what it decides itself.
        broker.know(replicated(BROKER, 0))
        await broker.world.settle()
        stale = roles(replicated(BROKER, 3), GOOD._replace(controller_epoch=4))
        assert (await local.leader_and_isr(stale)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert (await local.leader_and_isr(roles(replicated(BROKER, 3)))).error_code == 0
        assert broker.world.runner("t").leading.leader_epoch == 3
        assert (await local.stop_replica(stop(3))).error_code == 0
        await broker.world.settle()
        local.close()


# -- many partitions -----------------------------------------------------------------------------


MANY = LARGE_COUNT
PATIENCE_S = 10


def many_states(leader_epoch: int) -> list[TopicStates]:
    many = TopicImage("t", TOPIC_ID, (replicated(BROKER, leader_epoch),) * MANY)
    return messages.topic_states(EMPTY_IMAGE.apply(TopicCreated(many, {})), {"t": range(MANY)})


def many_roles(leader_epoch: int, *, is_full: bool = False) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        GOOD, is_full, [(BROKER, BROKER_EPOCH), (OTHER, 20)], many_states(leader_epoch)
    )


def leader_epochs(broker: Controlled) -> set[int]:
    return {runner.leader_epoch for runner in broker.world.partitions}


async def know_many(broker: Controlled) -> None:
    many = TopicImage("t", TOPIC_ID, (replicated(BROKER, 0),) * MANY)
    broker.membership.follow([TopicCreated(many, {})])
    await broker.world.replicas.settled()


def call_in_turn(turn: int, callback: Callable[[], None]) -> list[int]:
    """Call back after so many turns of the loop; the list grows with every turn."""
    turns: list[int] = []

    def count() -> None:
        turns.append(len(turns))
        if len(turns) == turn:
            callback()
        if len(turns) < 1_000:
            asyncio.get_running_loop().call_soon(count)

    count()
    return turns


@in_virtual_time
async def test_others_have_their_turn_between_many_roles() -> None:
    async with controlled() as broker:
        await know_many(broker)
        turns = call_in_turn(-1, lambda: None)
        assert (await broker.requests.leader_and_isr(many_roles(3))).error_code == 0
        # Once while they are read, once while they are taken.
        assert len(turns) >= 2 * MANY // PARTS_PER_TURN
        assert leader_epochs(broker) == {3}


@in_virtual_time
async def test_roles_are_not_taken_for_a_session_that_has_ended_meanwhile() -> None:
    async with controlled() as broker:
        await know_many(broker)
        read_in = MANY // PARTS_PER_TURN
        call_in_turn(read_in + 2, broker.world.replicas.drop_roles)
        await broker.requests.leader_and_isr(many_roles(3))
        assert leader_epochs(broker) == {-1}


@in_virtual_time
async def test_roles_are_not_taken_from_a_controller_that_was_succeeded_meanwhile() -> None:
    async with controlled() as broker:
        await know_many(broker)
        newer = replace(CLAIM, controller_epoch=ControllerEpoch(6))
        call_in_turn(2, lambda: setattr(broker.membership, "claim", newer))
        told = await broker.requests.leader_and_isr(many_roles(3))
        assert told.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert leader_epochs(broker) == {-1}


@in_virtual_time
async def test_who_is_registered_anew_meanwhile_has_not_been_told_everything() -> None:
    """So what nobody has named is not known to be nobody's."""
    async with controlled() as broker:
        await know_many(broker)
        world = broker.world
        stray = world.log_dir.path / "stray-0"
        world.disk.make_folder(stray)
        id_of_nobody = f"version: 0\ntopic_id: {'A' * 21}Q\n"
        world.disk.replace_file(stray / "partition.metadata", id_of_nobody.encode())
        read_in = MANY // PARTS_PER_TURN
        call_in_turn(read_in + 2, lambda: setattr(broker.membership, "broker_epoch", 2))
        await broker.requests.leader_and_isr(many_roles(3, is_full=True))
        await world.replicas.settled()
        assert world.disk.exists(stray)
        broker.membership.broker_epoch = BROKER_EPOCH
        await broker.requests.leader_and_isr(many_roles(4, is_full=True))
        await world.replicas.settled()
        assert not world.disk.exists(stray)


@pytest.mark.parametrize("is_succeeded", [False, True])
def test_metadata_of_many_partitions_is_of_use_only_for_the_newest_image(
    monkeypatch: pytest.MonkeyPatch, is_succeeded: bool
) -> None:
    changes_from = messages.changes_from
    begun, may_go_on = threading.Event(), threading.Event()
    images: list[ClusterImage] = []

    def slow(image: ClusterImage, request: UpdateMetadataRequest) -> list[Change]:
        images.append(image)
        begun.set()
        assert may_go_on.wait(PATIENCE_S), "the event loop was held up"
        return changes_from(image, request)

    async def scenario() -> None:
        async with controlled() as broker:
            monkeypatch.setattr(messages, "changes_from", slow)
            request = broker.update()._replace(topics=many_states(0))
            telling = asyncio.create_task(broker.requests.update_metadata(request))
            assert await asyncio.to_thread(begun.wait, PATIENCE_S)
            broker.membership.follow(
                [TopicConfigChanged(await other(broker), {"retention.ms": "7"})]
            )
            if is_succeeded:
                broker.membership.claim = replace(CLAIM, controller_epoch=ControllerEpoch(6))
            may_go_on.set()
            code = (await telling).error_code
            await broker.world.replicas.settled()
            image = broker.world.image
            assert image.topic_config("other") == {"retention.ms": "7"}
            if is_succeeded:
                assert code == ErrorCode.STALE_CONTROLLER_EPOCH
                assert "t" not in image.topics
            else:
                assert code == 0
                assert len(images) == 2
                assert len(image.topics["t"].partitions) == MANY

    asyncio.run(scenario())


async def other(broker: Controlled) -> str:
    """A topic that the controller has made before."""
    created = TopicImage("other", TopicId(UUID(int=8)), (replicated(OTHER, 0),))
    broker.membership.follow([TopicCreated(created, {})])
    return created.name
