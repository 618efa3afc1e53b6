"""The coordinator of groups and its handlers, put together."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from tidelog.base.ids import BrokerId
from tidelog.base.ports import Clock
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.dispatch import DirectHandler
from tidelog.broker.group_settings import GroupSettings
from tidelog.broker.group_shards import GroupCoordinator, GroupShards
from tidelog.broker.group_topics import GroupTopics
from tidelog.broker.handlers.coordinated import Coordinated, CoordinatedHandler
from tidelog.broker.handlers.heartbeat import HeartbeatApi
from tidelog.broker.handlers.leave_group import LeaveGroupApi
from tidelog.broker.handlers.offset_commit import OffsetCommitApi
from tidelog.broker.handlers.offset_fetch import OffsetFetchApi
from tidelog.broker.large_requests import LargeRequests
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import RequestTasks
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.groups import GroupsConfig
from tidelog.core.controller.names import CONSUMER_OFFSETS
from tidelog.wire.api import ApiKey


def group_coordinator(
    config: GroupsConfig,
    consumer_config: ConsumerGroupsConfig,
    *,
    broker_id: BrokerId,
    partitions: Partitions,
    clock: Clock,
    chance: Random,
    hash_key: bytes,
    loop: asyncio.AbstractEventLoop,
    tasks: asyncio.TaskGroup,
) -> GroupCoordinator:
    """Follows the partitions of `__consumer_offsets`, none of which may have a role yet."""
    topics = GroupTopics()
    settings = GroupSettings(consumer_config)
    shards = Coordinators(
        CONSUMER_OFFSETS,
        GroupShards(config, topics, settings, tasks),
        broker_id=broker_id,
        partitions=partitions,
        clock=clock,
        hash_key=hash_key,
        loop=loop,
        tasks=tasks,
        reply_timeout_ms=config.offsets_commit_timeout_ms,
        load_bytes=config.offsets_load_buffer_size,
    )
    partitions.attach_to(CONSUMER_OFFSETS, shards.attach)
    return GroupCoordinator(shards, topics, settings, loop, chance)


def direct_group_handlers(
    groups: GroupCoordinator, partitions: Partitions, tasks: RequestTasks, large: LargeRequests
) -> Mapping[ApiKey, DirectHandler]:
    """The handlers of what members send often; the others are in `admin_handlers.py`."""
    apis: Mapping[ApiKey, Coordinated[Any]] = {
        ApiKey.OFFSET_COMMIT: OffsetCommitApi(groups, partitions),
        ApiKey.OFFSET_FETCH: OffsetFetchApi(groups, partitions),
        ApiKey.HEARTBEAT: HeartbeatApi(groups),
        ApiKey.LEAVE_GROUP: LeaveGroupApi(groups),
    }
    return {key: CoordinatedHandler(api, tasks, large) for key, api in apis.items()}
