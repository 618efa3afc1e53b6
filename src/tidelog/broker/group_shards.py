"""Shards of the group coordinator on this broker: how one is made, and how its records are stored.

`GroupShards` is what `broker/coordinators.py` has to know of groups; `GroupCoordinator` is all
shards that this broker runs, as handlers see them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, cast
from uuid import UUID

from tidelog.base.errors import ErrorCode, RequestRefused, WireError
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.group_settings import GroupSettings
from tidelog.broker.group_topics import GroupTopics
from tidelog.broker.large_requests import Aside
from tidelog.broker.shard_runner import ShardRunner
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.groups import GroupsConfig
from tidelog.core.controller.changes import Change, TopicDeleted
from tidelog.core.controller.image import ClusterImage
from tidelog.core.coordinators import Effects, Token, Transactional
from tidelog.core.groups.consumer.requests import AssignmentTooLarge, MakeAssignment
from tidelog.core.groups.context import ASSIGNED_AT_ONCE_MAX
from tidelog.core.groups.shard import GroupShard
from tidelog.records.batch import Codec
from tidelog.records.consumer_groups import Partitions
from tidelog.records.groups import GroupRecord
from tidelog.wire.group_records import (
    GROUP_METADATA_KEY,
    OFFSET_COMMIT_KEYS,
    decode_group_record,
    encode_group_record,
)

logger = logging.getLogger(__name__)

GROUP_TEXT_MAX_BYTES: Final = 32_000
"""Of an id or a name: records have room for 32,767, and ids of members are longer than clients'."""

Decide = Callable[[GroupShard, Token, int], Effects]


class GroupShards:
    """Makes shards, and knows how their records are written.

    Of offsets and of classic groups the last record says it all, for whoever replays it: a group
    that only keeps offsets is as good as none to every record but them, and what an offset was
    before is of no consequence. Records of consumer groups build upon each other.
    """

    kinds = (*OFFSET_COMMIT_KEYS, GROUP_METADATA_KEY)
    kinds_in_transactions = OFFSET_COMMIT_KEYS

    def __init__(
        self,
        config: GroupsConfig,
        topics: GroupTopics,
        settings: GroupSettings,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.topics = topics
        self._settings = settings
        self._tasks = tasks
        self._aside = Aside()
        self._config = config
        self.codec = Codec(config.offsets_topic_compression_codec)

    def create(self, *, leader_epoch: int, record_max_bytes: int) -> GroupShard:
        return GroupShard(
            config=self._config,
            record_max_bytes=record_max_bytes,
            consumer_config=self._settings.default,
            consumer_configs=self._settings.current,
            topics=self.topics.current,
            assigned_at_once_max=ASSIGNED_AT_ONCE_MAX,
        )

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        return encode_group_record(cast(GroupRecord, record))

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        """A record that nobody can read is left out: the other groups have to go on."""
        try:
            return decode_group_record(key, value)
        except WireError as error:
            logger.error("record of a group cannot be read", extra={"key": key, "reason": error})
            return None

    def replay(
        self, shard: GroupShard, record: object, transactional: Transactional | None
    ) -> None:
        if transactional is None:
            shard.replay(cast(GroupRecord, record))
        else:
            shard.replay_transactional(cast(GroupRecord, record), transactional.producer_id)

    def on_transaction_ended(
        self, shard: GroupShard, producer: Transactional, *, is_committed: bool, now_ms: int
    ) -> Effects:
        return shard.on_marker(producer.producer_id, is_commit=is_committed)

    def perform(self, runner: ShardRunner[GroupShard], deed: object) -> None:
        if isinstance(deed, AssignmentTooLarge):
            logger.error(
                "group has no assignment",
                extra={"group": deed.group_id, "reason": deed.refusal().message},
            )
            return
        assert isinstance(deed, MakeAssignment)
        self._tasks.create_task(self._make(runner, deed))

    async def _make(self, runner: ShardRunner[GroupShard], assignment: MakeAssignment) -> None:
        """One after the other: each group has one at most that is waiting here."""
        targets: dict[str, Partitions] | None = None
        try:
            targets = await self._aside.run(assignment.make, count=assignment.size)
        except Exception:  # One group must not end the broker of all others.
            logger.exception("assignment failed", extra={"group": assignment.group_id})
        runner.tell(lambda shard, _: shard.on_assigned(assignment, targets))


class GroupCoordinator:
    """Every group that this broker looks after, found by its id."""

    def __init__(
        self,
        shards: Coordinators[GroupShard],
        topics: GroupTopics,
        settings: GroupSettings,
        loop: asyncio.AbstractEventLoop,
        chance: Random,
    ) -> None:
        self.shards = shards
        self.topics = topics
        self._settings = settings
        self._loop = loop
        self._chance = chance

    def new_member_id(self, prefix: str) -> str:
        """An id that nobody has had, and that tells whose it is."""
        return f"{prefix}-{UUID(int=self._chance.getrandbits(128), version=4)}"

    def ask(
        self, group_id: str, decide: Decide, *, may_write: bool = True
    ) -> "asyncio.Future[object]":
        """What the shard of `group_id` replies, or RequestRefused. Never raises by itself."""
        try:
            require_text(group_id, ErrorCode.INVALID_GROUP_ID)
            informed = partial(self._informed, decide)
            return self.shards.ask(group_id, informed, may_write=may_write)
        except RequestRefused as refused:
            return self.refuse(refused.code)

    def _informed(self, decide: Decide, shard: GroupShard, token: Token, now_ms: int) -> Effects:
        """Shards learn of it when they are asked something: one that loads is not told."""
        shard.know_topics(self.topics.current)
        shard.know_configs(self._settings.default, self._settings.current)
        return decide(shard, token, now_ms)

    def ask_all(self, decide: Decide) -> "list[asyncio.Future[object]]":
        """What each shard of this broker replies."""
        return [runner.ask(decide, may_write=False) for runner in self.shards]

    def refuse(self, code: ErrorCode) -> "asyncio.Future[object]":
        """What is not even asked."""
        refused: asyncio.Future[object] = self._loop.create_future()
        refused.set_exception(RequestRefused(code))
        refused.exception()  # Whoever asked may be gone before it looks.
        return refused

    def on_config(self, config: ConsumerGroupsConfig) -> None:
        """The broker's settings are these now."""
        self._settings.on_config(config)

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """Offsets of deleted topics are deleted too."""
        self.topics.on_image(image, changes)
        self._settings.on_image(image, changes)
        deleted = {change.name for change in changes if isinstance(change, TopicDeleted)}
        if deleted:
            self.shards.tell_all(lambda shard, now_ms: shard.on_topics_deleted(deleted, now_ms))


def require_text(text: str, code: ErrorCode) -> None:
    """Raises RequestRefused if there is no room for `text` in a record."""
    if len(text) > GROUP_TEXT_MAX_BYTES or len(text.encode()) > GROUP_TEXT_MAX_BYTES:
        raise RequestRefused(code)
