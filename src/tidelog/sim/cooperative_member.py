"""A member of the classic protocol that keeps what it has while it joins again (KIP-429).

    join, naming what it owns ──▶ sync ──▶ gives up what it was not given again ──▶ join at once
                                              │ nothing of that kind                  ▲
                                              ▼                                       │
                                  heartbeat, commit a little further ── told to ──────┘

The leader gives nobody what another still owns: that one gives it up first, and the next generation
hands it out. Who is not a member any more has lost everything.

A request to join that goes unanswered may be heard late, and then tells of what was owned long ago;
so who sent it does not go on, and joins under another name.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

from kio.schema.join_group.v9.response import JoinGroupResponseMember

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.records.consumer_protocol import decode_subscription, encode_assignment
from tidelog.sim.classic_member import ClassicMember, Share
from tidelog.sim.coordinated import Unanswered
from tidelog.sim.group_ledger import Asked
from tidelog.sim.group_member import NOBODY, Place

LAST_COMMIT_SHARE = 0.5

_LOST = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
}


class CooperativeMember(ClassicMember):
    """Like an eager one, but for what it does with its partitions."""

    assignor = "cooperative-sticky"

    # Both are set anew by `_give_up`, which whoever starts over calls.
    _owned: Set[TopicPartition] = frozenset()
    _has_given_up_some = False

    async def run(self) -> None:
        self._offsets: dict[int, int] = {}
        while True:
            await self._commit_once_more()
            try:
                place = await self._join()
            except Unanswered:
                self._start_over()
                place = None
            if place is not None:
                self.place = place
                with suppress(Unanswered):  # Its place is its own until it hears otherwise.
                    await self._work(place)
            await asyncio.sleep(self._client.random.uniform(0.0, 0.1))

    async def _commit_once_more(self) -> None:
        """Others join already, and it is still the owner."""
        if self.place is None or self.is_resting:
            return
        if self._client.random.random() < LAST_COMMIT_SHARE:
            await self._commit_further(self.place, self._offsets)

    def _give_up(self) -> None:
        super()._give_up()
        self._owned = frozenset()
        self._offsets = {}
        self._has_given_up_some = False

    async def _on_refusal(self, code: int) -> None:
        if code in _LOST:
            self._give_up()
        await super()._on_refusal(code)

    # -- what it has -----------------------------------------------------------------------------

    def _take(self, place: Place, asked: Asked) -> None:
        given = frozenset(place.partitions)
        self._has_given_up_some = bool(self._owned - given)
        self._let_go(sorted(self._owned - given))
        self._hold(given - self._owned, asked)
        kept = {one.partition for one in given & self._owned}
        self._offsets = {one: self._offsets[one] for one in self._offsets.keys() & kept}
        self._owned = given

    async def _work(self, place: Place) -> None:
        if self._has_given_up_some:
            return  # Whoever is to have it waits for us.
        new = [one.partition for one in place.partitions if one.partition not in self._offsets]
        if new:
            code, offsets = await self._fetch(new, NOBODY)
            if code != ErrorCode.NONE:
                await self._on_refusal(code)
                return
            self._offsets |= offsets
        await self._go_on(place, self._offsets)

    # -- leading ---------------------------------------------------------------------------------

    def _subscription(self) -> bytes:
        """An assignment has the layout of what is owned, between its version and its user data."""
        owned = encode_assignment(self._owned, 1)[2:-4]
        return b"\x00\x01" + super()._subscription()[2:] + owned

    def _share_out(self, members: Sequence[JoinGroupResponseMember]) -> Share:
        claims = {one.member_id: _owned(one.metadata) for one in members}
        return share_out(claims, self._topic, self._partition_count)


def _owned(metadata: bytes) -> Set[TopicPartition]:
    subscription = decode_subscription(metadata)
    assert subscription is not None
    return frozenset(subscription.owned)


def share_out(claims: Mapping[str, Set[TopicPartition]], topic: str, partition_count: int) -> Share:
    """Even shares, of which members keep as much as they may and get nothing that another claims.

    `claims`: by member, what it says to own.
    """
    partitions = [TopicPartition(topic, number) for number in range(partition_count)]
    claimed = Counter(one for owned in claims.values() for one in owned)
    least, more = divmod(partition_count, len(claims))
    shares: dict[str, list[TopicPartition]] = {}
    for member in sorted(claims, key=lambda one: (-len(claims[one]), one)):
        may_keep = least + (more > 0)
        sole = sorted(one for one in claims[member] if claimed[one] == 1)
        shares[member] = sole[:may_keep]
        more -= len(shares[member]) > least
    kept = {one for share in shares.values() for one in share}
    for one in partitions:
        if one not in kept:
            poorest = min(shares, key=lambda member: (len(shares[member]), member))
            shares[poorest].append(one)
    return {
        member: sorted(one for one in share if one in kept or not claimed[one])
        for member, share in shares.items()
    }
