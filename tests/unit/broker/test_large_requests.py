"""What grows with a request is done aside, one large request at a time."""

import asyncio
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from tests.support.kio_codec import example, milliseconds
from tests.unit.broker.controlled_world import controlled_world
from tests.unit.broker.controllers import Observer, running
from tests.unit.broker.served import LIST_OFFSETS_VERSION, Client
from tests.unit.broker.test_dispatch import with_cold_handler
from tidelog.base.errors import ErrorCode
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.handlers import (
    find_coordinator,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from tidelog.broker.large_requests import (
    LARGE_COUNT,
    PARTS_PER_TURN,
    Aside,
    LargeRequests,
    in_turns,
)
from tidelog.broker.memory import MemoryBound
from tidelog.coordination.memory import MemoryTree
from tidelog.core.controller import configs, topics
from tidelog.core.controller.requests import ConfigResource, NewTopic, ResourceType
from tidelog.wire import messages
from tidelog.wire.api import ApiKey
from tidelog.wire.metadata import encode_metadata_response

PATIENCE_S = 10


def thread_name() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize(("count", "is_aside"), [(LARGE_COUNT - 1, False), (LARGE_COUNT, True)])
def test_only_what_is_large_is_done_on_a_thread(count: int, is_aside: bool) -> None:
    name = asyncio.run(Aside().run(thread_name, count=count))
    assert (name != thread_name()) == is_aside


def test_a_long_answer_lets_others_have_their_turn() -> None:
    async def scenario() -> None:
        happened: list[object] = []

        async def somebody_else() -> None:
            happened.append("somebody else")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(somebody_else())
            happened.extend([part async for part in in_turns(range(3 * PARTS_PER_TURN))])
        assert happened[0] == "somebody else"
        assert happened[1:] == list(range(3 * PARTS_PER_TURN))

    asyncio.run(scenario())


def test_large_requests_take_turns_and_their_bytes_count_while_they_wait() -> None:
    async def scenario() -> None:
        memory = MemoryBound(1_000)
        large = LargeRequests(memory)
        order: list[int] = []
        gate = asyncio.Event()

        async def request(number: int) -> None:
            async with large.turn(10):
                order.append(number)
                await gate.wait()

        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                tasks.create_task(request(number))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert order == [0]
            assert memory.held_bytes == 30
            gate.set()
        assert order == [0, 1, 2]
        assert memory.held_bytes == 0

    asyncio.run(scenario())


def test_a_client_that_hangs_up_in_the_queue_gives_its_bytes_back() -> None:
    async def scenario() -> None:
        memory = MemoryBound(1_000)
        large = LargeRequests(memory)
        async with large.turn(10):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), large.turn(10):
                    raise AssertionError("two at once")
            assert memory.held_bytes == 10

    asyncio.run(scenario())


class Interlude:
    """Stands in for work that takes long: it ends when the event loop has served somebody."""

    def __init__(self, work: Callable[..., object]) -> None:
        self._work = work
        self._begun = threading.Event()
        self._served = threading.Event()

    def __call__(self, *arguments: object, **named: object) -> object:
        self._begun.set()
        assert self._served.wait(PATIENCE_S), "the event loop was held up"
        return self._work(*arguments, **named)

    async def serve(self, client: Client | None) -> None:
        assert await asyncio.to_thread(self._begun.wait, PATIENCE_S)
        if client is not None:
            client.fetch({}, max_wait_ms=0)
            assert client.fetched().partitions == {}
        self._served.set()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - a thread is at work, and there is no event
            await asyncio.sleep(0.001)


async def taken(client: Client) -> list[Any]:
    answers: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while not answers:
            await asyncio.sleep(0.001)
            answers = client.take()
    return answers


def test_a_large_request_is_read_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with with_cold_handler(is_loaded=True) as (served, handler, client):
            interlude = Interlude(messages.decode_request)
            monkeypatch.setattr(messages, "decode_request", interlude)
            handler.gate.set()
            names = [{"name": f"topic-{number}", "topic_id": None} for number in range(2_000)]
            client.send(ApiKey.DELETE_TOPICS, 6, {"topics": names, "timeout": milliseconds(1_000)})
            await interlude.serve(served.client())
            await until(lambda: handler.asked)
            assert served.world.request_memory.held_bytes == 0

    asyncio.run(scenario())


def test_a_request_that_is_too_large_is_not_kept() -> None:
    async def scenario() -> None:
        async with with_cold_handler(is_loaded=True) as (_served, handler, client):
            key = ApiKey.DESCRIBE_CLUSTER
            frame = client.frame(key, 0, {"include_cluster_authorized_operations": False})[4:]
            frame += bytes(messages.BODY_BYTES_MAX)
            client.served.server.request_max_bytes = 2 * messages.BODY_BYTES_MAX
            client.send_together([struct.pack(">i", len(frame)) + frame])
            await until(lambda: client.take() or client.transport.is_closed)
            assert handler.asked == []

    asyncio.run(scenario())


def test_a_large_answer_is_written_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with with_cold_handler(is_loaded=True) as (served, handler, client):
            interlude = Interlude(messages.encode_response)
            monkeypatch.setattr(messages, "encode_response", interlude)
            monkeypatch.setattr(messages, "count_parts", lambda *_, **__: LARGE_COUNT)
            handler.gate.set()
            client.send(
                ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}
            )
            await interlude.serve(served.client())
            await until(client.take)

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [3, 5_000])
def test_parts_of_an_answer_are_counted_as_far_as_it_matters(count: int) -> None:
    broker = DescribeClusterBroker(
        broker_id=BrokerId(1), host="h", port=i32(9092), rack=None, is_fenced=False
    )
    response = replace(example(DescribeClusterResponse), brokers=(broker,) * count)
    counted = messages.count_parts(response, enough=100)
    assert counted == min(count + 1, 100)


def test_a_large_request_is_decided_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with running(MemoryTree()) as runner:
            observer = Observer(runner.image)
            runner.subscribe(observer)
            interlude = Interlude(topics.create_topics)
            monkeypatch.setattr(topics, "create_topics", interlude)
            wanted = [NewTopic(name=f"topic-{number}") for number in range(LARGE_COUNT)]
            creating = asyncio.create_task(
                AdminRequests(runner).create_topics(wanted, validate_only=False)
            )
            await interlude.serve(None)
            outcomes = await creating
            assert {outcome.error for outcome in outcomes} == {ErrorCode.NONE}
            assert len(observer.image.topics) == LARGE_COUNT

    asyncio.run(scenario())


def test_a_setting_of_all_brokers_is_held_against_many_topics_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What topics inherit has to suit what each has set itself."""

    async def scenario() -> None:
        async with running(MemoryTree()) as runner:
            requests = AdminRequests(runner)
            wanted = [
                NewTopic(name=f"topic-{number}", configs=(("retention.ms", str(number)),))
                for number in range(LARGE_COUNT)
            ]
            await requests.create_topics(wanted, validate_only=False)
            interlude = Interlude(configs.replace_configs)
            monkeypatch.setattr(configs, "replace_configs", interlude)
            everybody = ConfigResource(ResourceType.BROKER, "")
            altering = asyncio.create_task(
                requests.alter_configs(
                    [(everybody, (("log.retention.ms", "1"),))], validate_only=False
                )
            )
            await interlude.serve(None)
            assert [outcome.error for outcome in await altering] == [ErrorCode.NONE]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_asked_for_by_name", [True, False])
def test_metadata_of_many_topics_is_written_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch, is_asked_for_by_name: bool
) -> None:
    async def scenario() -> None:
        async with controlled_world() as controlled:
            wanted = [NewTopic(name=f"topic-{number}") for number in range(2_100)]
            await controlled.requests.create_topics(wanted, validate_only=False)
            await controlled.world.replicas.settled()
            interlude = Interlude(encode_metadata_response)
            monkeypatch.setattr(metadata, "encode_metadata_response", interlude)
            client = controlled.served.client()
            asked = [{"name": one.name, "topic_id": None} for one in wanted]
            client.send(
                ApiKey.METADATA,
                12,
                {
                    "topics": asked if is_asked_for_by_name else None,
                    "allow_auto_topic_creation": True,
                    "include_topic_authorized_operations": False,
                },
            )
            await interlude.serve(controlled.served.client())
            (answer,) = await taken(client)
            assert len(answer.topics) == 2_100

    asyncio.run(scenario())


MANY = range(2_000)
LOOK_UPS = {
    "ListOffsets": (
        ApiKey.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": number, "current_leader_epoch": -1, "timestamp": -1}
                        for number in MANY
                    ],
                }
            ],
        },
        list_offsets,
        "decode_list_offsets",
    ),
    "OffsetForLeaderEpoch": (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": "t",
                    "partitions": [
                        {"partition": number, "current_leader_epoch": -1, "leader_epoch": 0}
                        for number in MANY
                    ],
                }
            ],
        },
        offset_for_leader_epoch,
        "decode_offset_for_leader_epoch",
    ),
    "FindCoordinator": (
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 0, "coordinator_keys": tuple(f"group-{number}" for number in MANY)},
        find_coordinator,
        "decode_find_coordinator",
    ),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_many_things_are_looked_up_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    api_key, version, values, module, decode = LOOK_UPS[name]

    async def scenario() -> None:
        async with controlled_world() as controlled:
            served = controlled.served
            await controlled.creation.create_missing(["t"])
            interlude = Interlude(getattr(module, decode))
            monkeypatch.setattr(module, decode, interlude)
            client = served.client()
            client.send(api_key, version, values)
            await interlude.serve(served.client())
            (answer,) = await taken(client)
            assert len(_parts(answer)) == len(MANY)

    asyncio.run(scenario())


@pytest.mark.parametrize("name", LOOK_UPS)
def test_nothing_is_looked_up_for_a_client_that_hung_up_in_the_queue(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    api_key, version, values, module, decode = LOOK_UPS[name]
    decoded: list[object] = []

    async def scenario() -> None:
        async with controlled_world() as controlled:
            served = controlled.served
            monkeypatch.setattr(module, decode, lambda *arguments: decoded.append(arguments))
            client = served.client()
            memory = served.world.request_memory
            async with served.large.turn(1):
                client.send(api_key, version, values)
                await until(lambda: memory.held_bytes > 1)
                client.disconnect()
            await until(lambda: memory.held_bytes == 0)

    asyncio.run(scenario())
    assert decoded == []


def _parts(answer: Any) -> Sequence[Any]:
    parts: Sequence[Any] = (
        answer.topics[0].partitions if hasattr(answer, "topics") else answer.coordinators
    )
    return parts
