"""A member of a group by the classic protocol: joins, is given partitions, commits.

    join ──▶ sync ──▶ fetch what is committed ──▶ heartbeat, commit a little further, ... ──┐
      ▲                                                                                     │
      └─── told to, or fenced, or a commit went unanswered, or it leaves for a while ◀──────┘

It is an eager one: it gives up all that it has before it joins. `cooperative_member.py` has those
that do not.
"""

import asyncio
import datetime
import struct
from collections.abc import Sequence

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponseMember
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId
from kio.static.primitive import i32, i32Timedelta

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.records.consumer_protocol import decode_assignment, encode_assignment
from tidelog.sim.client import SimulatedClient
from tidelog.sim.coordinated import Unanswered
from tidelog.sim.group_ledger import Asked, Assigned, GroupLedger
from tidelog.sim.group_member import NOBODY, GroupMember, IsCoordinator, Pace, Place
from tidelog.wire.api import ApiKey

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

Share = dict[str, Sequence[TopicPartition]]
"""By member: what a leader gives to each."""


class ClassicMember(GroupMember):
    """Subscribes to one topic, of `partition_count` partitions."""

    assignor = "range"

    def __init__(
        self,
        client: SimulatedClient,
        ledger: GroupLedger,
        *,
        group: str,
        topic: str,
        partition_count: int,
        pace: Pace,
        is_coordinator: IsCoordinator,
    ) -> None:
        super().__init__(
            client, ledger, group=group, topic=topic, pace=pace, is_coordinator=is_coordinator
        )
        self._partition_count = partition_count
        self._joins = 0

    async def run(self) -> None:
        while True:
            try:
                self.place = await self._join()
                if self.place is not None:
                    await self._work(self.place)
            except Unanswered:
                pass
            self._give_up()
            await asyncio.sleep(self._client.random.uniform(0.0, 0.1))

    def _give_up(self) -> None:
        self._let_go()
        self.place = None

    # -- joining ---------------------------------------------------------------------------------

    async def _join(self) -> Place | None:
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
                protocols=(
                    JoinGroupRequestProtocol(name=self.assignor, metadata=self._subscription()),
                ),
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
        shares: Share = {}
        if joined.leader == joined.member_id:
            shares = self._share_out(joined.members)
            self._ledger.give(self._group, joined.generation_id, shares)
        return await self._sync(joined.generation_id, shares)

    def _share_out(self, members: Sequence[JoinGroupResponseMember]) -> Share:
        partitions = [TopicPartition(self._topic, one) for one in range(self._partition_count)]
        return {
            member_id: [one for one in partitions if one.partition % len(members) == number]
            for number, member_id in enumerate(sorted(one.member_id for one in members))
        }

    async def _sync(self, generation: int, shares: Share) -> Place | None:
        asked = await self._about_to_ask()
        synced = await self._coordinator.ask(
            ApiKey.SYNC_GROUP,
            SYNC_VERSION,
            SyncGroupRequest(
                group_id=GroupId(self._group),
                generation_id=i32(generation),
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name=self.assignor,
                assignments=tuple(
                    SyncGroupRequestAssignment(
                        member_id=member, assignment=encode_assignment(share, 0)
                    )
                    for member, share in shares.items()
                ),
            ),
        )
        code = int(synced.error_code)
        if code != ErrorCode.NONE:
            await self._on_refusal(code)
            return None
        embedded = decode_assignment(synced.assignment)
        assert embedded is not None
        place = Place(generation, embedded.partitions)
        self._ledger.assigned.append(
            Assigned(self._group, generation, self._member_id, place.partitions, self._now_s())
        )
        self._take(place, asked)
        self._renew(asked)
        return place

    def _take(self, place: Place, asked: Asked) -> None:
        """What it was given is its own; it had nothing before."""
        self._hold(place.partitions, asked)

    async def _on_refusal(self, code: int) -> None:
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self._start_over()
        await self._coordinator.is_elsewhere(code)

    def _start_over(self) -> None:
        """As somebody else."""
        self._give_up()
        self._member_id = ""

    # -- being a member --------------------------------------------------------------------------

    async def _work(self, place: Place) -> None:
        numbers = [one.partition for one in place.partitions]
        code, offsets = await self._fetch(numbers, NOBODY)
        if code != ErrorCode.NONE:
            await self._on_refusal(code)
            return
        await self._go_on(place, offsets)

    async def _go_on(self, place: Place, offsets: dict[int, int]) -> None:
        """Commit what it has a little further each time, until it has to join again."""
        while True:
            await self._pause()
            if not self.is_resting:
                if self._client.random.random() < self._pace.leave_share:
                    await self.leave()
                    return
                if not await self._commit_further(place, offsets):
                    return
            if not await self._beat(place):
                return

    async def _commit_further(self, place: Place, offsets: dict[int, int]) -> bool:
        """Whether it may go on."""
        if not offsets:
            return True
        try:
            code = await self._commit(place.generation, offsets)
        except Unanswered:
            self._start_over()
            return False
        if code != ErrorCode.NONE:
            await self._on_refusal(code)
        return code == ErrorCode.NONE

    async def _beat(self, place: Place) -> bool:
        while True:
            asked = await self._about_to_ask()
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
                self._renew(asked)
                return True
            if await self._coordinator.is_elsewhere(code):
                continue
            await self._on_refusal(code)
            return False

    async def leave(self) -> None:
        self._give_up()
        member_id, self._member_id = self._member_id, ""
        await self._coordinator.ask(
            ApiKey.LEAVE_GROUP,
            LEAVE_VERSION,
            LeaveGroupRequest(
                group_id=GroupId(self._group), members=(MemberIdentity(member_id=member_id),)
            ),
        )

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


def _milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))
