"""A broker that coordinates groups, and its clients."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kio.index import load_request_schema

from tests.support.kio_codec import Values, build, milliseconds
from tests.unit.broker.controlled_world import ControlledWorld, controlled_world
from tests.unit.broker.served import Client
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.handlers.consumer_group_describe import ConsumerGroupDescribeHandler
from tidelog.broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from tidelog.broker.handlers.delete_groups import DeleteGroupsHandler
from tidelog.broker.handlers.describe_groups import DescribeGroupsHandler
from tidelog.broker.handlers.join_group import JoinGroupHandler
from tidelog.broker.handlers.list_groups import ListGroupsHandler
from tidelog.broker.handlers.offset_delete import OffsetDeleteHandler
from tidelog.broker.handlers.sync_group import SyncGroupHandler
from tidelog.core.controller.requests import NewTopic
from tidelog.wire.api import SUPPORTED, ApiKey

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


class Grouped:
    """One broker, with the topic `t` of two partitions."""

    def __init__(self, controlled: ControlledWorld) -> None:
        self.controlled = controlled
        groups, partitions = controlled.groups, controlled.world.partitions
        self.cold: dict[ApiKey, Any] = {
            ApiKey.JOIN_GROUP: JoinGroupHandler(groups=groups),
            ApiKey.SYNC_GROUP: SyncGroupHandler(groups=groups),
            ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatHandler(
                groups=groups, config=controlled.world.config.consumer_groups
            ),
            ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeHandler(
                groups=groups, config=controlled.world.config.consumer_groups
            ),
            ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(groups=groups),
            ApiKey.LIST_GROUPS: ListGroupsHandler(groups=groups),
            ApiKey.DELETE_GROUPS: DeleteGroupsHandler(groups=groups),
            ApiKey.OFFSET_DELETE: OffsetDeleteHandler(groups=groups, partitions=partitions),
        }

    async def create_topics(self) -> None:
        """The one that groups read, and by asking for a coordinator, theirs."""
        new = NewTopic(name="t", partition_count=2, replication_factor=1)
        await self.controlled.requests.create_topics([new], validate_only=False)
        await self.direct(
            ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ("g",)}, version=6
        )
        await self.controlled.settle()

    async def direct(
        self,
        api_key: ApiKey,
        values: Values,
        *,
        version: int | None = None,
        client: Client | None = None,
    ) -> Any:
        """The answer to a request that is handled as it is read."""
        client = client or self.controlled.served.client()
        newest = SUPPORTED[api_key].highest
        client.send(api_key, newest if version is None else version, values)
        await self.controlled.settle()
        answers = client.take()
        while not answers:  # A thread is at work, and there is no event.
            await asyncio.sleep(0.001)
            answers = client.take()
        return answers[0]

    async def ask(
        self, api_key: ApiKey, values: Values, *, version: int | None = None, client_id: str = "me"
    ) -> Any:
        """The answer to a request that a handler of decoded messages gets."""
        newest = SUPPORTED[api_key].highest
        request = build(load_request_schema(api_key, newest), values)
        context = RequestContext(
            api_version=newest if version is None else version,
            client_id=client_id,
            peer_host="10.0.0.7",
            listener_name="",
        )
        answer = await self.cold[api_key].handle(request, context)
        assert isinstance(answer, Postponed)  # Nobody's turn is held up by a wait.
        return await answer.wait()

    async def join(self, member_id: str = "") -> Any:
        return await self.ask(ApiKey.JOIN_GROUP, joining(member_id))

    async def stable(self) -> tuple[str, int]:
        """One member that has everything; its id and the generation."""
        member_id = (await self.join()).member_id
        joined = await self.join(member_id)
        synced = await self.ask(ApiKey.SYNC_GROUP, syncing(member_id, joined.generation_id))
        assert not synced.error_code
        return member_id, joined.generation_id


def joining(member_id: str) -> Values:
    return {
        "group_id": "g",
        "session_timeout": milliseconds(10_000),
        "rebalance_timeout": milliseconds(20_000),
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": ({"name": "range", "metadata": b""},),
        "reason": None,
    }


def syncing(member_id: str, generation: int) -> Values:
    return {
        "group_id": "g",
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": ({"member_id": member_id, "assignment": b"all"},),
    }


@asynccontextmanager
async def grouped(
    settings: Mapping[str, str] | None = None, *, with_topics: bool = True
) -> AsyncIterator[Grouped]:
    async with controlled_world({**SETTINGS, **(settings or {})}) as controlled:
        one = Grouped(controlled)
        if with_topics:
            await one.create_topics()
        yield one
