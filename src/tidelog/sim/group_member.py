"""A member of a consumer group, by the classic protocol: joins, is given partitions, commits.

    join ──▶ sync ──▶ fetch what is committed ──▶ heartbeat, commit a little further, ... ──┐
      ▲                                                                                     │
      └─── told to, or fenced, or a commit went unanswered, or it leaves for a while ◀──────┘

It consumes nothing: its offsets only grow, from what the member before it had committed, so that
whatever goes back is seen. A commit without an answer may be heard late, behind later ones; so the
member does not go on in that generation, and makes the next one by what it says of itself.
"""

import asyncio
import datetime
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
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
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from tidelog.base.errors import ErrorCode
from tidelog.sim.client import SimulatedClient
from tidelog.sim.coordinated import GROUP, CoordinatedClient, Unanswered
from tidelog.sim.group_ledger import Assigned, Commit, Fetched, GroupLedger
from tidelog.wire.api import ApiKey

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
COMMIT_VERSION = 9
FETCH_VERSION = 9
STEP_MAX = 5

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a member says something, and how often it does not."""

    session_timeout_ms: int = 3_000
    rebalance_timeout_ms: int = 2_000
    pause_min_s: float = 0.05
    pause_max_s: float = 0.6
    leave_share: float = 0.02
    silent_share: float = 0.02


@dataclass(frozen=True, slots=True)
class _Place:
    """What a member is in one generation."""

    generation: int
    partitions: tuple[int, ...]


class SimulatedMember:
    """Takes part in one group until told to stop; then it stays, and does not commit any more."""

    def __init__(
        self,
        client: SimulatedClient,
        ledger: GroupLedger,
        *,
        group: str,
        topic: str,
        partition_count: int,
        pace: Pace,
    ) -> None:
        self._pace = pace
        self._client = client
        self._coordinator = CoordinatedClient(client, group, GROUP)
        self._ledger = ledger
        self._group = group
        self._topic = topic
        self._partition_count = partition_count
        self._member_id = ""
        self._joins = 0
        self.place: _Place | None = None
        self.is_resting = False
        """Stay in the group, without leaving or committing."""

    async def run(self) -> None:
        """Until the process ends."""
        while True:
            try:
                self.place = await self._join()
                if self.place is not None:
                    await self._work(self.place)
            except Unanswered:
                pass
            self.place = None
            await asyncio.sleep(self._client.random.uniform(0.0, 0.1))

    # -- joining ---------------------------------------------------------------------------------

    async def _join(self) -> _Place | None:
        self._joins += 1
        joined = await self._coordinator.ask(
            ApiKey.JOIN_GROUP,
            JOIN_VERSION,
            JoinGroupRequest(
                group_id=GroupId(self._group),
                session_timeout=_milliseconds(self._pace.session_timeout_ms),
                rebalance_timeout=_milliseconds(self._pace.rebalance_timeout_ms),
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=self._subscription()),),
            ),
        )
        code = int(joined.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return None
        if code != ErrorCode.NONE:
            await self._on_refusal(code)
            return None
        self._member_id = joined.member_id
        shares: dict[str, Sequence[int]] = {}
        if joined.leader == joined.member_id:
            shares = self._share_out(sorted(one.member_id for one in joined.members))
            self._ledger.give(self._group, joined.generation_id, shares)
        return await self._sync(joined.generation_id, shares)

    def _share_out(self, members: Sequence[str]) -> dict[str, Sequence[int]]:
        partitions = range(self._partition_count)
        return {
            member: [one for one in partitions if one % len(members) == number]
            for number, member in enumerate(members)
        }

    async def _sync(self, generation: int, shares: dict[str, Sequence[int]]) -> _Place | None:
        synced = await self._coordinator.ask(
            ApiKey.SYNC_GROUP,
            SYNC_VERSION,
            SyncGroupRequest(
                group_id=GroupId(self._group),
                generation_id=i32(generation),
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=tuple(
                    SyncGroupRequestAssignment(member_id=member, assignment=self._assignment(share))
                    for member, share in shares.items()
                ),
            ),
        )
        code = int(synced.error_code)
        if code != ErrorCode.NONE:
            await self._on_refusal(code)
            return None
        place = _Place(generation, _partitions(synced.assignment))
        self._ledger.assigned.append(
            Assigned(self._group, generation, self._member_id, place.partitions, self._now_s())
        )
        return place

    async def _on_refusal(self, code: int) -> None:
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self._member_id = ""
        await self._coordinator.is_elsewhere(code)

    # -- being a member --------------------------------------------------------------------------

    async def _work(self, place: _Place) -> None:
        offsets = await self._fetch_offsets(place)
        random, pace = self._client.random, self._pace
        while offsets is not None:
            await asyncio.sleep(random.uniform(pace.pause_min_s, pace.pause_max_s))
            if not self.is_resting:
                if random.random() < pace.silent_share:
                    await asyncio.sleep(pace.session_timeout_ms / 1000 * random.uniform(0.9, 1.3))
                if random.random() < pace.leave_share:
                    await self.leave()
                    return
            if not self.is_resting and not await self._commit(place, offsets):
                return
            if not await self._beat(place):
                return

    async def _beat(self, place: _Place) -> bool:
        while True:
            answer = await self._coordinator.ask(
                ApiKey.HEARTBEAT,
                HEARTBEAT_VERSION,
                HeartbeatRequest(
                    group_id=GroupId(self._group),
                    generation_id=i32(place.generation),
                    member_id=self._member_id,
                ),
            )
            code = int(answer.error_code)
            if code == ErrorCode.NONE:
                return True
            if await self._coordinator.is_elsewhere(code):
                continue
            await self._on_refusal(code)
            return False

    async def _fetch_offsets(self, place: _Place) -> dict[int, int] | None:
        """What is committed of its partitions; None if it has to join again."""
        while True:
            asked_s = self._now_s()
            answer = await self._coordinator.ask(
                ApiKey.OFFSET_FETCH, FETCH_VERSION, self._fetch_request(place)
            )
            (group,) = answer.groups
            code = int(group.error_code)
            if code == ErrorCode.NONE:
                break
            if not await self._coordinator.is_elsewhere(code):
                await self._on_refusal(code)
                return None
        offsets: dict[int, int] = {}
        for topic in group.topics:
            for one in topic.partitions:
                self._ledger.fetched.append(
                    Fetched(
                        self._group,
                        self._member_id,
                        one.partition_index,
                        one.committed_offset,
                        asked_s,
                        self._now_s(),
                    )
                )
                offsets[one.partition_index] = max(0, one.committed_offset)
        return offsets

    async def _commit(self, place: _Place, offsets: dict[int, int]) -> bool:
        """Whether it may go on; what is not answered ends its generation."""
        if not offsets:
            return True
        random = self._client.random
        wanted = {one: offset + random.randint(1, STEP_MAX) for one, offset in offsets.items()}
        asked_s = self._now_s()
        answer = await self._coordinator.ask(
            ApiKey.OFFSET_COMMIT, COMMIT_VERSION, self._commit_request(place, wanted)
        )
        for topic in answer.topics:
            for one in topic.partitions:
                code = int(one.error_code)
                if code != ErrorCode.NONE:
                    await self._on_refusal(code)
                    return False
                self._ledger.commits.append(
                    Commit(
                        self._group,
                        place.generation,
                        self._member_id,
                        one.partition_index,
                        wanted[one.partition_index],
                        asked_s,
                        self._now_s(),
                    )
                )
        offsets.update(wanted)
        return True

    async def leave(self) -> None:
        """Say that it goes. Raises Unanswered."""
        await self._coordinator.ask(
            ApiKey.LEAVE_GROUP,
            LEAVE_VERSION,
            LeaveGroupRequest(
                group_id=GroupId(self._group),
                members=(MemberIdentity(member_id=self._member_id),),
            ),
        )
        self._member_id = ""

    # -- messages --------------------------------------------------------------------------------

    def _subscription(self) -> bytes:
        """As consumers say it; the user data is another each time, so that a join is a change."""
        name = self._topic.encode()
        data = _INT32.pack(self._joins)
        return b"".join(
            [
                _INT16.pack(0),
                _INT32.pack(1),
                _INT16.pack(len(name)),
                name,
                _INT32.pack(len(data)),
                data,
            ]
        )

    def _assignment(self, partitions: Sequence[int]) -> bytes:
        name = self._topic.encode()
        return b"".join(
            [
                _INT16.pack(0),
                _INT32.pack(1),
                _INT16.pack(len(name)),
                name,
                _INT32.pack(len(partitions)),
                *map(_INT32.pack, partitions),
                _INT32.pack(-1),
            ]
        )

    def _fetch_request(self, place: _Place) -> OffsetFetchRequest:
        return OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=GroupId(self._group),
                    topics=(
                        OffsetFetchRequestTopics(
                            name=TopicName(self._topic),
                            partition_indexes=tuple(map(i32, place.partitions)),
                        ),
                    ),
                ),
            ),
            require_stable=True,
        )

    def _commit_request(self, place: _Place, wanted: dict[int, int]) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=GroupId(self._group),
            generation_id_or_member_epoch=i32(place.generation),
            member_id=self._member_id,
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

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _partitions(assignment: bytes) -> tuple[int, ...]:
    """What `_assignment` wrote; nothing, for a member that was given nothing."""
    if not assignment:
        return ()
    (name_bytes,) = _INT16.unpack_from(assignment, 6)
    position = 8 + name_bytes
    (count,) = _INT32.unpack_from(assignment, position)
    return tuple(
        _INT32.unpack_from(assignment, position + 4 + 4 * number)[0] for number in range(count)
    )


def _milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))
