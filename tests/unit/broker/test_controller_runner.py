"""The controller stores what it decides and announces what it stored (C2, C3, P1, P4)."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from tests.unit.broker.controllers import (
    ENDPOINTS,
    FlakyTree,
    LateTree,
    MovableTree,
    Observer,
    controller,
    running,
    start,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ConfigError, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_BROKER, BrokerId, ControllerEpoch
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.controller_runner import RETRY_BACKOFF_S, ControllerRunner
from tidelog.config.dynamic import AlterOperation
from tidelog.coordination.memory import MemoryTree
from tidelog.coordination.port import Create, Delete, Set
from tidelog.core.controller import nodes
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ControllerChanged,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage, LastStop
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicOutcome,
    TopicReference,
)

SOMEBODY_ELSE = 0
MANY_TURNS = 100


async def create(runner: ControllerRunner, *names: str, count: int = 1) -> list[TopicOutcome]:
    wanted = [NewTopic(name=name, partition_count=count) for name in names]
    return await AdminRequests(runner).create_topics(wanted, validate_only=False)


async def settled() -> None:
    """Let every task run until all of them wait for something else than each other."""
    for _ in range(50):
        await asyncio.sleep(0)


def fields(tree: MemoryTree, path: str) -> dict[str, object]:
    node = tree.get(path)
    assert node is not None
    decoded: dict[str, object] = json.loads(node.value)
    return decoded


@in_virtual_time
async def test_the_first_broker_registers_and_becomes_controller() -> None:
    tree = MemoryTree()
    async with running(tree, node_id="3", broker_rack="r") as runner:
        image = runner.image
        assert runner.is_controller
        assert image.controller_id == 3
        assert image.controller_epoch == 1
        assert image.brokers[BrokerId(3)].rack == "r"
        assert len(image.cluster_id) == 22
        assert tree.children("/") == [
            "admin", "brokers", "cluster", "config", "controller", "controller_epoch",
            "latest_producer_id_block", "log_dir_event_notification",
        ]  # fmt: skip
        assert fields(tree, "/controller")["brokerid"] == 3
        assert fields(tree, "/brokers/ids/3")["endpoints"] == ["PLAINTEXT://localhost:9092"]
    assert tree.get("/controller") is None
    assert tree.children("/brokers/ids") == []


@in_virtual_time
async def test_the_cluster_keeps_its_id_and_each_controller_has_a_larger_epoch() -> None:
    tree = MemoryTree()
    async with running(tree) as first:
        cluster_id = first.image.cluster_id
    async with running(tree) as second:
        assert second.image.cluster_id == cluster_id
        assert second.image.controller_epoch == 2


@in_virtual_time
async def test_a_new_cluster_gets_the_id_that_is_asked_for() -> None:
    tree = MemoryTree()
    settings = {"tidelog_cluster_id": "my-cluster"}
    async with running(tree, **settings) as runner:
        assert runner.image.cluster_id == "my-cluster"


@in_virtual_time
@pytest.mark.parametrize("has_cluster", [False, True])
async def test_a_broker_of_another_cluster_leaves_no_trace(*, has_cluster: bool) -> None:
    tree = MemoryTree()
    if has_cluster:
        async with running(tree):
            pass
    before = tree.children("/")
    with pytest.raises(ConfigError, match=r"log.dirs belongs to cluster another, but"):
        await controller(tree).join("another")
    assert tree.children("/") == before


@in_virtual_time
async def test_a_created_topic_is_stored_and_announced_before_the_answer() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        observer = Observer(runner.image)
        runner.subscribe(observer)
        (outcome,) = await create(runner, "t", count=2)
        assert outcome.error is ErrorCode.NONE
        assert runner.image.topics["t"].topic_id == outcome.topic_id
        assert observer.image is runner.image
        assert [type(change) for change in observer.changes] == [TopicCreated]
    assert tree.children("/brokers/topics/t/partitions") == ["0", "1"]
    assert fields(tree, "/brokers/topics/t")["partitions"] == {"0": [1], "1": [1]}
    assert fields(tree, "/brokers/topics/t/partitions/1/state")["leader"] == 1
    assert fields(tree, "/config/topics/t")["config"] == {}
    assert tree.children("/config/changes") == []


@in_virtual_time
async def test_whoever_subscribes_before_the_start_hears_everything() -> None:
    tree = MemoryTree()
    async with running(tree) as first:
        await create(first, "a", "b")
    runner = controller(tree)
    observer = Observer(EMPTY_IMAGE)
    runner.subscribe(observer)
    assert await start(runner) == observer.image
    assert set(observer.image.topics) == {"a", "b"}
    await runner.stop()


@in_virtual_time
async def test_a_restarted_broker_finds_its_topics_and_leads_them_in_a_new_epoch() -> None:
    tree = MemoryTree()
    async with running(tree) as first:
        await create(first, "t", count=3)
        before = first.image
    async with running(tree) as second:
        after = second.image
        assert after.topics.keys() == before.topics.keys()
        assert after.topic_names == before.topic_names
        for old, new in zip(
            before.topics["t"].partitions, after.topics["t"].partitions, strict=True
        ):
            assert (new.leader, new.isr) == (old.leader, old.isr)
            assert new.leader_epoch == old.leader_epoch + 1
            assert new.partition_epoch == old.partition_epoch + 1
    assert fields(tree, "/brokers/topics/t/partitions/0/state")["leader_epoch"] == 1


@in_virtual_time
async def test_reading_the_tree_again_without_a_restart_raises_no_epoch() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        await create(runner, "a")
        tree.refusing = 1
        await create(runner, "b")
        await create(runner, "c")
        assert runner.image.topics["a"].partitions[0].leader_epoch == 0


@in_virtual_time
async def test_validating_changes_nothing() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        await create(runner, "t")
        before, writes = runner.image, tree.write_count
        (created,) = await AdminRequests(runner).create_topics(
            [NewTopic(name="n")], validate_only=True
        )
        (grown,) = await AdminRequests(runner).create_partitions(
            [NewPartitions(topic="t", partition_count=9)], validate_only=True
        )
        resource = ConfigResource(ResourceType.TOPIC, "t")
        (altered,) = await AdminRequests(runner).alter_configs(
            [(resource, (("retention.ms", "1"),))], validate_only=True
        )
        assert {created.error, grown.error, altered.error} == {ErrorCode.NONE}
        assert runner.image is before
        assert tree.write_count == writes


@in_virtual_time
async def test_a_request_is_one_transaction_however_many_topics_it_has() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        before = tree.write_count
        await create(runner, *(f"t{number}" for number in range(20)), count=5)
        assert tree.write_count == before + 1


@in_virtual_time
async def test_defaults_of_the_broker_count_also_those_set_at_run_time() -> None:
    tree = MemoryTree()
    async with running(tree, num_partitions="3") as runner:
        (outcome,) = await AdminRequests(runner).create_topics(
            [NewTopic(name="t")], validate_only=False
        )
        assert outcome.partition_count == 3
        resource = ConfigResource(ResourceType.BROKER, "")
        await AdminRequests(runner).alter_configs(
            [(resource, (("log.message.timestamp.type", "LogAppendTime"),))], validate_only=False
        )
        assert runner.image.broker_config(None) == {"log.message.timestamp.type": "LogAppendTime"}


@in_virtual_time
async def test_a_grown_topic_is_stored_and_announced() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        await create(runner, "t")
        observer = Observer(runner.image)
        runner.subscribe(observer)
        await AdminRequests(runner).create_partitions(
            [NewPartitions(topic="t", partition_count=3)], validate_only=False
        )
        assert [type(change) for change in observer.changes] == [PartitionsAdded]
        stored = runner.image
    async with running(tree) as again:
        assert len(again.image.topics["t"].partitions) == 3
        assert again.image.topics["t"].topic_id == stored.topics["t"].topic_id
    assert fields(tree, "/brokers/topics/t")["partitions"] == {"0": [1], "1": [1], "2": [1]}


@in_virtual_time
async def test_a_deleted_topic_leaves_nothing_behind() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        await create(runner, "t", "kept", count=3)
        observer = Observer(runner.image)
        runner.subscribe(observer)
        topic_id = runner.image.topics["t"].topic_id
        (outcome,) = await AdminRequests(runner).delete_topics([TopicReference(topic_id=topic_id)])
        assert outcome.error is ErrorCode.NONE
        assert observer.changes == [TopicDeleted("t", topic_id)]
        assert tree.children("/brokers/topics") == ["kept"]
        assert tree.children("/config/topics") == ["kept"]
        assert tree.children("/admin/delete_topics") == []
        (again,) = await create(runner, "t")
        assert again.error is ErrorCode.NONE
        assert again.topic_id != topic_id


@in_virtual_time
async def test_settings_are_stored_announced_and_told_to_whoever_watches_them() -> None:
    tree = MemoryTree()
    topic, broker = ConfigResource(2, "t"), ConfigResource(4, "1")
    async with running(tree) as runner:
        await create(runner, "t")
        observer = Observer(runner.image)
        runner.subscribe(observer)
        await AdminRequests(runner).alter_configs(
            [(topic, (("retention.ms", "5"),))], validate_only=False
        )
        set_flush = ConfigAlteration("flush.ms", AlterOperation.SET, "7")
        set_size = ConfigAlteration("message.max.bytes", AlterOperation.SET, "999")
        await AdminRequests(runner).incremental_alter_configs(
            [(topic, (set_flush,)), (broker, (set_size,))], validate_only=False
        )
        assert observer.changes == [
            TopicConfigChanged("t", {"retention.ms": "5"}),
            TopicConfigChanged("t", {"retention.ms": "5", "flush.ms": "7"}),
            BrokerConfigChanged(BrokerId(1), {"message.max.bytes": "999"}),
        ]
    assert fields(tree, "/config/brokers/1")["config"] == {"message.max.bytes": "999"}
    notices = tree.children("/config/changes")
    assert [fields(tree, f"/config/changes/{each}")["entity_path"] for each in notices] == [
        "topics/t", "topics/t", "brokers/1",
    ]  # fmt: skip
    async with running(tree) as again:
        assert again.image.topic_config("t") == {"retention.ms": "5", "flush.ms": "7"}
        assert again.image.broker_config(BrokerId(1)) == {"message.max.bytes": "999"}
        await AdminRequests(again).alter_configs([(topic, ()), (broker, ())], validate_only=False)
        assert again.image.topic_config("t") == {}
        assert again.image.broker_configs == {}


@in_virtual_time
async def test_notices_of_changed_settings_do_not_pile_up() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        await create(runner, "t")
        for number in range(150):
            value = (("retention.ms", str(number)),)
            (outcome,) = await AdminRequests(runner).alter_configs(
                [(ConfigResource(2, "t"), value)], validate_only=False
            )
            assert outcome.error is ErrorCode.NONE
        assert len(tree.children("/config/changes")) <= 101


@in_virtual_time
async def test_producer_ids_are_handed_out_once() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        blocks = await asyncio.gather(
            *(AdminRequests(runner).allocate_producer_ids() for _ in range(3))
        )
        assert sorted(blocks, key=lambda block: block.start) == [
            range(1000), range(1000, 2000), range(2000, 3000),
        ]  # fmt: skip
    async with running(tree) as again:
        assert await AdminRequests(again).allocate_producer_ids() == range(3000, 4000)


@in_virtual_time
async def test_requests_that_come_at_once_are_served_one_by_one() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        outcomes = await asyncio.gather(*(create(runner, "same", f"own-{n}") for n in range(10)))
        assert [same.error for same, _own in outcomes].count(ErrorCode.NONE) == 1
        assert {own.error for _same, own in outcomes} == {ErrorCode.NONE}
        assert len(runner.image.topics) == 11


@in_virtual_time
async def test_a_request_whose_client_is_gone_is_carried_out_all_the_same() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        request = asyncio.create_task(create(runner, "t"))
        await asyncio.sleep(0)
        request.cancel()
        await settled()
        assert "t" in runner.image.topics
        assert tree.get("/brokers/topics/t") is not None


@in_virtual_time
async def test_a_write_that_did_not_happen_is_an_error_and_can_be_repeated() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        before = runner.image
        tree.refusing = 1
        failed, refused = await AdminRequests(runner).create_topics(
            [NewTopic(name="t"), NewTopic(name="a b")], validate_only=False
        )
        assert failed.error is ErrorCode.REQUEST_TIMED_OUT
        assert failed.message == "nothing was written"
        assert refused.error is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert runner.image is before
        (again,) = await create(runner, "t")
        assert again.error is ErrorCode.NONE


@in_virtual_time
async def test_a_write_whose_answer_was_lost_is_found_before_the_next_decision() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        observer = Observer(runner.image)
        runner.subscribe(observer)
        tree.forgetting = 1
        (lost,) = await create(runner, "t")
        assert lost.error is ErrorCode.REQUEST_TIMED_OUT
        (again,) = await create(runner, "t")
        assert again.error is ErrorCode.TOPIC_ALREADY_EXISTS
        assert [type(change) for change in observer.changes] == [TopicCreated]


@in_virtual_time
async def test_a_write_whose_answer_was_lost_is_found_although_nobody_asks_for_anything() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        await settled()
        tree.forgetting = 1
        (lost,) = await create(runner, "t")
        assert lost.error is ErrorCode.REQUEST_TIMED_OUT
        await settled()
        assert "t" in runner.image.topics


@in_virtual_time
async def test_a_claim_whose_answer_was_lost_is_known_to_be_ones_own() -> None:
    tree = FlakyTree()
    async with running(tree, node_id="2") as second, running(tree, node_id="1") as first:
        assert second.is_controller
        tree.expire(second.joined().coordinator.session_id)
        await settled()
        assert first.is_controller
        await asyncio.sleep(2 * RETRY_BACKOFF_S)
        assert not second.is_controller
        tree.forgetting = 1
        tree.expire(first.joined().coordinator.session_id)
        await asyncio.sleep(3 * RETRY_BACKOFF_S)
        claimed = [runner for runner in (first, second) if runner.is_controller]
        assert len(claimed) == 1
        (outcome,) = await create(claimed[0], "t")
        assert outcome.error is ErrorCode.NONE


@in_virtual_time
async def test_a_deletion_whose_second_half_fails_is_finished_by_the_next_request() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        await create(runner, "t")

        def fail_second_half(_image: ClusterImage, changes: Sequence[Change]) -> None:
            tree.refusing = int(isinstance(changes[0], TopicDeleted))

        runner.subscribe(fail_second_half)
        (outcome,) = await AdminRequests(runner).delete_topics([TopicReference(name="t")])
        assert outcome.error is ErrorCode.NONE
        assert "t" not in runner.image.topics
        assert tree.children("/admin/delete_topics") == ["t"]
        (again,) = await create(runner, "t")
        assert again.error is ErrorCode.NONE
        assert tree.children("/admin/delete_topics") == []


@pytest.mark.parametrize("writes_left", range(6))
@in_virtual_time
async def test_a_controller_killed_between_any_two_writes_leaves_whole_topics(
    writes_left: int,
) -> None:
    """What it had acknowledged is there; the next controller finishes the rest (C3)."""
    tree = FlakyTree()
    async with running(tree) as runner:
        await create(runner, "old", "doomed", count=2)
        tree.writes_left = writes_left
        (created,) = await create(runner, "new", count=2)
        (deleted,) = await AdminRequests(runner).delete_topics([TopicReference(name="doomed")])
        (grown,) = await AdminRequests(runner).create_partitions(
            [NewPartitions(topic="old", partition_count=4)], validate_only=False
        )
        (altered,) = await AdminRequests(runner).alter_configs(
            [(ConfigResource(2, "old"), (("retention.ms", "5"),))], validate_only=False
        )
        tree.writes_left = None
    async with running(tree) as successor:
        image = successor.image
        assert ("new" in image.topics) == (created.error is ErrorCode.NONE)
        if deleted.error is ErrorCode.NONE:
            assert "doomed" not in image.topics
        assert (len(image.topics["old"].partitions) == 4) == (grown.error is ErrorCode.NONE)
        assert bool(image.topic_config("old")) == (altered.error is ErrorCode.NONE)
        assert sorted(image.topics) == tree.children("/brokers/topics")
        assert sorted(image.topics) == tree.children("/config/topics")
        assert tree.children("/admin/delete_topics") == []
        for name, topic in image.topics.items():
            assert len(tree.children(f"/brokers/topics/{name}/partitions")) == len(topic.partitions)


@in_virtual_time
async def test_a_topic_of_which_only_its_own_node_was_written_is_completed() -> None:
    tree = MemoryTree()
    async with running(tree) as first:
        await create(first, "t", count=2)
    state = "/brokers/topics/t/partitions/1/state"
    tree.transact([Delete(state), Delete("/brokers/topics/t/partitions/1")], SOMEBODY_ELSE)
    async with running(tree) as runner:
        assert runner.image.topics["t"].partitions[1].leader == 1
    assert fields(tree, state)["leader"] == 1


@in_virtual_time
async def test_a_controller_that_was_succeeded_cannot_write() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        tree.transact([Set("/controller_epoch", b"9")], SOMEBODY_ELSE)
        (outcome,) = await create(runner, "t")
        assert outcome.error is ErrorCode.NOT_CONTROLLER
        assert tree.get("/brokers/topics/t") is None
        assert not runner.is_controller


@in_virtual_time
async def test_a_controller_that_was_succeeded_listens_to_the_next_one() -> None:
    """It may hear from the other one before it has looked at the claim itself."""
    tree = MemoryTree()
    async with running(tree) as runner:
        succeed(tree)
        found = await runner.look_up_claim()
        assert (found.controller_id, found.controller_epoch) == (2, 9)
        runner.follow([ControllerChanged(BrokerId(2), ControllerEpoch(9))])
        assert runner.image.controller_id == 2


@in_virtual_time
async def test_who_was_elected_while_it_asked_does_not_believe_an_older_answer() -> None:
    """Brokers ask when a controller speaks that they do not know: perhaps the one before us."""
    tree = LateTree()
    runner = controller(tree)
    await runner.join(None)
    tree.late_path = nodes.CONTROLLER_EPOCH
    asking = asyncio.create_task(runner.look_up_claim())
    await settle()
    assert not tree.late_path
    await runner.register(ENDPOINTS, LastStop.CLEAN)
    tree.arrives.set()
    assert (await asking).controller_id == 1
    assert runner.is_controller
    await runner.stop()


@in_virtual_time
async def test_who_is_succeeded_while_it_reads_the_cluster_goes_on_as_a_broker() -> None:
    tree = LateTree()
    runner = controller(tree)
    await runner.join(None)
    tree.late_path = nodes.CONFIG_CHANGES
    registering = asyncio.create_task(runner.register(ENDPOINTS, LastStop.CLEAN))
    await settle()
    assert not tree.late_path
    succeed(tree)
    await runner.look_up_claim()
    tree.arrives.set()
    await registering
    assert not runner.is_controller
    await runner.stop()


def succeed(tree: MemoryTree) -> None:
    """Broker 2 is controller now, in epoch 9."""
    claim = nodes.encode_controller(BrokerId(2), token=bytes(16), now_ms=0)
    tree.transact(
        [Delete("/controller"), Create("/controller", claim), Set("/controller_epoch", b"9")],
        SOMEBODY_ELSE,
    )


async def settle() -> None:
    for _ in range(MANY_TURNS):
        await asyncio.sleep(0)


@in_virtual_time
async def test_what_somebody_else_wrote_to_the_tree_is_read_before_deciding_again() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        tree.transact([Create("/config/topics/t", b'{"version":1,"config":{}}')], SOMEBODY_ELSE)
        (confused,) = await create(runner, "t")
        assert confused.error is ErrorCode.NOT_CONTROLLER
        (again,) = await create(runner, "t")
        assert again.error is ErrorCode.NONE


@in_virtual_time
async def test_the_second_broker_follows_and_takes_over_when_the_first_is_gone() -> None:
    tree = MemoryTree()
    async with running(tree, node_id="2") as second:
        assert second.is_controller
        async with running(tree, node_id="1") as first:
            await settled()
            assert not first.is_controller
            assert first.image.controller_id == 2
            assert second.image.brokers.keys() == {1, 2}
            (refused,) = await create(first, "t")
            assert refused.error is ErrorCode.NOT_CONTROLLER
            (created,) = await AdminRequests(second).create_topics(
                [NewTopic(name="t", partition_count=2, replication_factor=2)], validate_only=False
            )
            assert created.error is ErrorCode.NONE
            observer = Observer(second.image)
            second.subscribe(observer)
        await settled()
        for state in second.image.topics["t"].partitions:
            assert (state.leader, state.isr) == (2, (2,))
        kinds = [type(change) for change in observer.changes]
        assert kinds == [BrokerGone, PartitionChanged, PartitionChanged]


@in_virtual_time
async def test_a_dead_controller_is_succeeded_by_a_follower() -> None:
    tree = MemoryTree()
    await start(controller(tree, node_id="1"))
    async with running(tree, node_id="2") as second:
        follower = Observer(second.image)
        second.subscribe(follower)
        await settled()
        assert not second.is_controller
        tree.expire(first_session(tree))
        await settled()
        assert second.is_controller
        assert second.image.controller_epoch == 2
        assert ControllerChanged(BrokerId(2), ControllerEpoch(2)) in follower.changes


def first_session(tree: MemoryTree) -> int:
    node = tree.get("/brokers/ids/1")
    assert node is not None
    assert node.owner_session is not None
    return node.owner_session


@in_virtual_time
async def test_a_lost_session_is_announced_and_then_mended() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        await create(runner, "t")
        observer = Observer(runner.image)
        runner.subscribe(observer)
        tree.expire(first_session(tree))
        await settled()
        assert observer.changes[:2] == [
            ControllerChanged(NO_BROKER, ControllerEpoch(1)),
            BrokerGone(BrokerId(1)),
        ]
        kinds = {type(change) for change in observer.changes[2:]}
        assert kinds == {ControllerChanged, BrokerRegistered, PartitionChanged}
        assert runner.is_controller
        assert runner.image.topics["t"].partitions[0].leader_epoch == 1
        (outcome,) = await create(runner, "u")
        assert outcome.error is ErrorCode.NONE


@in_virtual_time
async def test_a_lost_session_is_announced_although_the_coordinator_does_not_answer() -> None:
    """C6: before anything else, also before what is under way."""
    tree = FlakyTree()
    async with running(tree) as runner:
        observer = Observer(runner.image)
        runner.subscribe(observer)
        tree.refusing = 100
        MemoryTree.transact(tree, [Delete("/controller")], SOMEBODY_ELSE)
        await settled()  # It stands for election, and will again and again.
        waiting = asyncio.create_task(create(runner, "t"))
        await settled()
        tree.expire(first_session(tree))
        await settled()
        assert observer.changes[:2] == [
            ControllerChanged(NO_BROKER, ControllerEpoch(1)),
            BrokerGone(BrokerId(1)),
        ]
        assert waiting.done()
        assert waiting.result()[0].error is ErrorCode.NOT_CONTROLLER
        tree.refusing = 0
        await asyncio.sleep(2 * RETRY_BACKOFF_S)
        assert runner.is_controller


@in_virtual_time
async def test_a_coordinator_that_has_forgotten_the_cluster_deletes_nothing() -> None:
    """Its file was removed, and a session that begins anew finds an empty one."""
    tree, empty = MovableTree(), MemoryTree()
    async with running(tree) as runner:
        await create(runner, "t")
        observer = Observer(runner.image)
        runner.subscribe(observer)
        tree.moved_to = empty
        tree.expire(first_session(tree))
        await asyncio.sleep(3 * RETRY_BACKOFF_S)
        assert not runner.is_controller
        assert "t" in runner.image.topics
        assert not any(isinstance(change, TopicDeleted) for change in observer.changes)
        assert empty.get("/cluster") is None
        tree.moved_to = None  # Somebody puts it back.
        await asyncio.sleep(2 * RETRY_BACKOFF_S)
        assert runner.is_controller
        assert "t" in runner.image.topics


@in_virtual_time
async def test_requests_are_refused_while_the_session_is_lost() -> None:
    tree = FlakyTree()
    async with running(tree) as runner:
        tree.refusing = 3
        tree.expire(first_session(tree))
        await settled()
        (outcome,) = await create(runner, "t")
        assert outcome.error is ErrorCode.NOT_CONTROLLER
        with pytest.raises(RequestRefused) as refusal:
            await AdminRequests(runner).allocate_producer_ids()
        assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(10)
        assert runner.is_controller
        (outcome,) = await create(runner, "t")
        assert outcome.error is ErrorCode.NONE


@in_virtual_time
async def test_a_broker_does_not_double_one_that_is_alive() -> None:
    tree = MemoryTree()
    async with running(tree, node_id="5"):
        with pytest.raises(ConfigError, match=r"node\.id is 5"):
            await start(controller(tree, node_id="5"))


@in_virtual_time
async def test_a_broker_waits_for_its_former_self_to_be_declared_dead() -> None:
    tree = MemoryTree()
    dead = controller(tree)
    await start(dead)
    starting = asyncio.create_task(start(controller(tree)))
    await settled()
    assert not starting.done()
    tree.expire(first_session(tree))
    image = await starting
    assert image.controller_id == 1
    assert image.controller_epoch == 2


@in_virtual_time
async def test_a_damaged_tree_is_refused_by_the_name_of_the_node() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        await create(runner, "t")
    tree.transact([Set("/brokers/topics/t", b"nonsense")], SOMEBODY_ELSE)
    with pytest.raises(StorageError, match="/brokers/topics/t"):
        await start(controller(tree))
    assert tree.children("/brokers/ids") == []


@in_virtual_time
async def test_requests_that_wait_when_the_broker_stops_are_refused() -> None:
    tree = MemoryTree()
    async with running(tree) as runner:
        waiting = [asyncio.create_task(create(runner, f"t{number}")) for number in range(3)]
        await asyncio.sleep(0)
    for request in waiting:
        (outcome,) = await request
        assert outcome.error in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER)
    (late,) = await create(runner, "late")
    assert late.error is ErrorCode.NOT_CONTROLLER


@in_virtual_time
async def test_who_asks_between_the_end_of_a_controller_and_of_its_session_is_refused() -> None:
    runner = controller(MemoryTree())
    await start(runner)
    serving = asyncio.create_task(runner.run())
    await settled()
    serving.cancel()
    await asyncio.wait([serving])
    async with asyncio.timeout(1):
        (outcome,) = await create(runner, "t")
    assert outcome.error is ErrorCode.NOT_CONTROLLER
    await runner.stop()
