"""A member of a group by the consumer protocol (KIP-848): told what it has, it gives back first.

    heartbeat ──▶ told its epoch, and what is its own ──▶ commits, gives up what is not, says so ──┐
        ▲                                                                                          │
        └────────────── fetches what is committed of what it was given, commits ◀──────────────────┘

Fenced, it gives up all that it has and joins with epoch 0. It is as careless as real clients are,
but for one thing: what it sent and was not answered may be heard late, behind what it says later.
Where that would be taken for something that it did not mean, it goes on under another name:

    a commit              would take offsets back
    joining, leaving      would be taken for having given up everything
"""

import asyncio
import datetime
from collections.abc import Callable, Collection

from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.consumer_group_heartbeat.v1.response import Assignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicId, TopicIdPartition, TopicPartition
from tidelog.records.consumer_groups import JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH
from tidelog.sim.client import SimulatedClient
from tidelog.sim.coordinated import Unanswered
from tidelog.sim.group_ledger import Asked, Epoch, GroupLedger
from tidelog.sim.group_member import GroupMember, IsCoordinator, Pace, Place
from tidelog.wire.api import ApiKey

HEARTBEAT_VERSION = 1
SLOW_SHARE = 0.05
OTHER_SUBSCRIPTION_SHARE = 0.02
STAYS_AWAY_SHARE = 0.3

NameOf = Callable[[TopicId], str]

_FENCED = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
_LATER = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID})


class ConsumerMember(GroupMember):
    """Subscribes to the topic whose offsets it commits, and to others that an expression names."""

    def __init__(
        self,
        client: SimulatedClient,
        ledger: GroupLedger,
        *,
        group: str,
        topic: str,
        expression: str,
        instance_id: str | None,
        name_of: NameOf,
        pace: Pace,
        is_coordinator: IsCoordinator,
    ) -> None:
        """`expression` is "" if it subscribes to the topic alone, always; else now and then."""
        super().__init__(
            client, ledger, group=group, topic=topic, pace=pace, is_coordinator=is_coordinator
        )
        self._any_expression = expression
        self._instance_id = instance_id
        self._name_of = name_of
        self._names_taken = 0
        self._epoch = JOINING_EPOCH
        self._assigned: frozenset[TopicIdPartition] = frozenset()
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self._offsets: dict[int, int] = {}
        self._owned_as_told: Collection[TopicIdPartition] = ()
        self._has_to_say_all = True
        self.expression = ""
        self._take_another_name()
        self._subscribe()

    def _subscribe(self) -> None:
        chosen = self._client.random.choice(["", self._any_expression])
        if chosen != self.expression:
            self.expression = chosen
            self._has_to_say_all = True

    def _take_another_name(self) -> None:
        self._names_taken += 1
        self._member_id = f"{self._client.name}-{self._names_taken}"

    def _join_again(self) -> None:
        """It has lost its place, with all that it had."""
        self._let_go()
        self._epoch = JOINING_EPOCH
        self._assigned = frozenset()
        self._owned = {}
        self._offsets = {}
        self._has_to_say_all = True
        self.place = None

    def _start_over(self) -> None:
        """As somebody else."""
        self._join_again()
        self._take_another_name()

    async def run(self) -> None:
        while True:
            await self._pause()
            try:
                await self._go_on()
            except Unanswered:
                continue  # What matters of it was seen to.

    async def _go_on(self) -> None:
        random = self._client.random
        if self._epoch != JOINING_EPOCH and not self.is_resting:
            if random.random() < self._pace.leave_share:
                await self.leave()
                return
            if random.random() < OTHER_SUBSCRIPTION_SHARE:
                self._subscribe()
            if not await self._commit_further(self._offsets):
                return
        if await self._beat() and await self._give_back():
            await self._fetch_missing()

    # -- offsets ---------------------------------------------------------------------------------

    async def _commit_further(self, offsets: dict[int, int]) -> bool:
        """Whether it is a member still."""
        if not offsets:
            return True
        try:
            code = await self._commit(self._epoch, offsets, self._instance_id)
        except Unanswered:
            self._start_over()
            raise
        if code == ErrorCode.NONE:
            return True
        self._offsets.clear()  # Some of it may count.
        if code in _FENCED:
            self._join_again()
            return False
        await self._coordinator.is_elsewhere(code)
        return True

    async def _fetch_missing(self) -> None:
        mine = {one.partition for one in self._owned.values() if one.topic == self._topic}
        missing = sorted(mine - self._offsets.keys())
        if not missing:
            return
        code, offsets = await self._fetch(missing, (self._member_id, self._epoch))
        if code == ErrorCode.NONE:
            self._offsets.update(offsets)
        elif code in _FENCED:
            self._join_again()
        else:
            # It will be told by the next heartbeat.
            assert code == ErrorCode.STALE_MEMBER_EPOCH, ErrorCode(code)

    # -- heartbeats ------------------------------------------------------------------------------

    async def _beat(self) -> bool:
        """Whether it is a member."""
        is_joining = self._epoch == JOINING_EPOCH
        asked = await self._about_to_ask()
        owned = tuple(self._owned)
        request = self._heartbeat(owned)
        self._has_to_say_all = True  # Until it knows that it was heard.
        try:
            answer = await self._coordinator.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request
            )
        except Unanswered:
            if is_joining:
                self._start_over()
            raise
        code = int(answer.error_code)
        if code == ErrorCode.NONE:
            self._has_to_say_all = False
            self._owned_as_told = owned
            self._on_told(answer.member_epoch, _partitions(answer.assignment), asked)
            return True
        if code in _FENCED:
            self._join_again()
        elif code not in _LATER:
            is_elsewhere = await self._coordinator.is_elsewhere(code)
            assert is_elsewhere, ErrorCode(code)
        return False

    def _on_told(
        self, epoch: int, assigned: frozenset[TopicIdPartition] | None, asked: Asked
    ) -> None:
        if asked.is_of_coordinator:
            is_joining = self._epoch == JOINING_EPOCH
            self._ledger.epochs.append(
                Epoch(self._group, self._member_id, epoch, is_joining, asked.at_s, self._now_s())
            )
        self._epoch = epoch
        if assigned is not None:
            self._assigned = assigned
        given = {one: self._named(one) for one in sorted(self._assigned - self._owned.keys())}
        self._owned |= given
        self._hold(given.values(), asked)
        self._renew(asked)
        self.place = Place(epoch, tuple(sorted(self._owned.values())))

    def _named(self, partition: TopicIdPartition) -> TopicPartition:
        return TopicPartition(self._name_of(partition.topic_id), partition.partition)

    async def _give_back(self) -> bool:
        """What it shall not have any more. Whether it is a member still."""
        back = {one: named for one, named in self._owned.items() if one not in self._assigned}
        if not back:
            return True
        random = self._client.random
        if not self.is_resting:
            if random.random() < SLOW_SHARE:
                timeout_s = self._pace.rebalance_timeout_ms / 1000
                await asyncio.sleep(timeout_s * random.uniform(0.5, 1.5))
            numbers = [one.partition for one in back.values() if one.topic == self._topic]
            last = {one: self._offsets.pop(one) for one in numbers if one in self._offsets}
            if not await self._commit_further(last):
                return False
        self._let_go(back.values())
        self._owned = {one: name for one, name in self._owned.items() if one not in back}
        return True

    async def leave(self) -> None:
        member_id, epoch = self._member_id, LEAVING_EPOCH
        if self._instance_id is not None and self._client.random.random() >= STAYS_AWAY_SHARE:
            epoch = LEAVING_STATIC_EPOCH
        self._start_over()
        request = ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self._group),
            member_id=member_id,
            member_epoch=i32(epoch),
            instance_id=self._instance_id,
            topic_partitions=None,
        )
        await self._coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request)

    def _heartbeat(self, owned: Collection[TopicIdPartition]) -> ConsumerGroupHeartbeatRequest:
        """As clients say it: all there is when they join or were not answered, else what is new."""
        says_all = self._has_to_say_all
        timeout_ms = self._pace.rebalance_timeout_ms if says_all else -1
        says_owned = says_all or set(owned) != set(self._owned_as_told)
        return ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self._group),
            member_id=self._member_id,
            member_epoch=i32(self._epoch),
            instance_id=self._instance_id,
            rebalance_timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=timeout_ms)),
            subscribed_topic_names=(TopicName(self._topic),) if says_all else None,
            subscribed_topic_regex=self.expression if says_all else None,
            topic_partitions=_topic_partitions(owned) if says_owned else None,
        )


def _topic_partitions(owned: Collection[TopicIdPartition]) -> tuple[TopicPartitions, ...]:
    by_topic: dict[TopicId, list[i32]] = {}
    for topic_id, number in sorted(owned):
        by_topic.setdefault(topic_id, []).append(i32(number))
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
        for topic_id, numbers in by_topic.items()
    )


def _partitions(assignment: Assignment | None) -> frozenset[TopicIdPartition] | None:
    if assignment is None:
        return None
    return frozenset(
        TopicIdPartition(TopicId(topic.topic_id), number)
        for topic in assignment.topic_partitions
        if topic.topic_id is not None
        for number in topic.partitions
    )
