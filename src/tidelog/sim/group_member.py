"""What members of both protocols have in common: offsets, what they hold, and for how long.

A member consumes nothing: its offsets only grow, from what the member before it had committed, so
that whatever goes back is seen. A commit without an answer may be heard late, behind later ones; so
who sent it does not go on, and joins under another name.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.broker.peers import Address
from tidelog.sim.client import SimulatedClient
from tidelog.sim.coordinated import GROUP, CoordinatedClient
from tidelog.sim.group_ledger import Asked, Commit, Fetched, GroupLedger
from tidelog.wire.api import ApiKey

COMMIT_VERSION = 9
FETCH_VERSION = 9
STEP_MAX = 5
NOBODY = (None, -1)
"""Who asks for offsets without saying who."""

IsCoordinator = Callable[[str, Address], bool]
"""Whether the broker at an address coordinates a group, as far as is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a member says something, and how often it does not."""

    session_timeout_ms: int = 3_000
    rebalance_timeout_ms: int = 2_000
    pause_min_s: float = 0.05
    pause_max_s: float = 0.6
    leave_share: float = 0.02
    silent_share: float = 0.02

    @property
    def lease_s(self) -> float:
        """For how long a member is one after it was heard, at least."""
        return (min(self.session_timeout_ms, self.rebalance_timeout_ms) - 1) / 1000


@dataclass(frozen=True, slots=True)
class Place:
    """What a member is in one generation, or in one epoch."""

    generation: int
    partitions: tuple[TopicPartition, ...]


class GroupMember:
    """Takes part in one group until told to rest; then it stays, and does not commit any more."""

    def __init__(
        self,
        client: SimulatedClient,
        ledger: GroupLedger,
        *,
        group: str,
        topic: str,
        pace: Pace,
        is_coordinator: IsCoordinator,
    ) -> None:
        """`topic` is the one whose offsets it commits."""
        self._pace = pace
        self._client = client
        self._coordinator = CoordinatedClient(client, group, GROUP)
        self._ledger = ledger
        self._group = group
        self._topic = topic
        self._is_coordinator = is_coordinator
        self._member_id = ""
        self.place: Place | None = None
        self.is_resting = False
        """Stay in the group, without leaving or committing."""

    async def run(self) -> None:
        """Until the process ends."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Say that it goes. Raises Unanswered."""
        raise NotImplementedError

    def end(self, now_s: float) -> None:
        """The process has ended: it holds nothing any more."""
        self._ledger.let_go(self._group, self._member_id, None, now_s)

    async def _pause(self) -> None:
        """As a client does between two polls; sometimes for longer than its session lasts."""
        random, pace = self._client.random, self._pace
        await asyncio.sleep(random.uniform(pace.pause_min_s, pace.pause_max_s))
        if not self.is_resting and random.random() < pace.silent_share:
            await asyncio.sleep(pace.session_timeout_ms / 1000 * random.uniform(0.9, 1.3))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # -- what it holds ---------------------------------------------------------------------------

    async def _about_to_ask(self) -> Asked:
        """Raises Unanswered if it finds nobody to ask."""
        address = await self._coordinator.locate()
        return Asked(self._now_s(), self._is_coordinator(self._group, address))

    def _hold(self, partitions: Collection[TopicPartition], asked: Asked) -> None:
        self._ledger.hold(self._group, self._member_id, partitions, asked, self._now_s())

    def _let_go(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """All that it holds, if None."""
        self._ledger.let_go(self._group, self._member_id, partitions, self._now_s())

    def _renew(self, asked: Asked) -> None:
        self._ledger.renew(self._group, self._member_id, asked, self._pace.lease_s)

    # -- offsets ---------------------------------------------------------------------------------

    async def _fetch(
        self, numbers: Collection[int], who: tuple[str | None, int]
    ) -> tuple[int, dict[int, int]]:
        """What is committed of these partitions, or an error code. Raises Unanswered."""
        while True:
            asked_s = self._now_s()
            answer = await self._coordinator.ask(
                ApiKey.OFFSET_FETCH, FETCH_VERSION, self._fetch_request(numbers, who)
            )
            (group,) = answer.groups
            code = int(group.error_code)
            if not await self._coordinator.is_elsewhere(code):
                break
        offsets: dict[int, int] = {}
        for topic in group.topics:
            for one in topic.partitions:
                self._ledger.fetched.append(
                    Fetched(
                        self._group,
                        self._member_id,
                        TopicPartition(self._topic, one.partition_index),
                        one.committed_offset,
                        asked_s,
                        self._now_s(),
                    )
                )
                offsets[one.partition_index] = max(0, one.committed_offset)
        return code, offsets

    async def _commit(
        self, generation: int, offsets: dict[int, int], instance_id: str | None = None
    ) -> int:
        """A little further than `offsets`, which it then changes, or an error code.

        Raises Unanswered, and then must not go on as this member.
        """
        random = self._client.random
        wanted = {one: offset + random.randint(1, STEP_MAX) for one, offset in offsets.items()}
        asked_s = self._now_s()
        answer = await self._coordinator.ask(
            ApiKey.OFFSET_COMMIT,
            COMMIT_VERSION,
            self._commit_request(generation, wanted, instance_id),
        )
        refusal = int(ErrorCode.NONE)
        for topic in answer.topics:
            for one in topic.partitions:
                code = int(one.error_code)
                if code != ErrorCode.NONE:
                    refusal = code
                    continue
                self._ledger.commits.append(
                    Commit(
                        self._group,
                        generation,
                        self._member_id,
                        TopicPartition(self._topic, one.partition_index),
                        wanted[one.partition_index],
                        asked_s,
                        self._now_s(),
                    )
                )
        offsets.update(wanted)
        return refusal

    def _fetch_request(
        self, numbers: Collection[int], who: tuple[str | None, int]
    ) -> OffsetFetchRequest:
        member_id, epoch = who
        return OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=GroupId(self._group),
                    member_id=member_id,
                    member_epoch=i32(epoch),
                    topics=(
                        OffsetFetchRequestTopics(
                            name=TopicName(self._topic),
                            partition_indexes=tuple(map(i32, numbers)),
                        ),
                    ),
                ),
            ),
            require_stable=True,
        )

    def _commit_request(
        self, generation: int, wanted: dict[int, int], instance_id: str | None
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=GroupId(self._group),
            generation_id_or_member_epoch=i32(generation),
            member_id=self._member_id,
            group_instance_id=instance_id,
            topics=(
                OffsetCommitRequestTopic(
                    name=TopicName(self._topic),
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=i32(partition),
                            committed_offset=i64(offset),
                            committed_metadata="",
                        )
                        for partition, offset in wanted.items()
                    ),
                ),
            ),
        )
