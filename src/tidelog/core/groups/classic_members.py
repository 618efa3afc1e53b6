"""The members of one classic group, and who of them the group waits for.

A member is *dynamic*, known by an id that it was given, or *static*: known by the
`group.instance.id` that its operator gave it, so that it may come back after a restart without
anybody noticing (KIP-345).

Invariants:

    M1  a group with members has a leader, who is one of them
    M2  `supported` counts, for each protocol, the members that know it
    M3  a static member's instance id leads to its member id and to no other
    M4  nobody is a member and pending at once
    M5  `joined_count` counts those whose request to join waits, so that a group of thousands is not
        gone through for each of them
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from tidelog.core.coordinators import Token
from tidelog.core.groups.requests import JoinedMember, JoinProtocol


class ClassicMember:
    """One member; its request to join or to sync waits here."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[JoinProtocol, ...],
        assignment: bytes,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Token | None = None
        self.awaiting_sync: Token | None = None
        self.is_new = False
        """It does not know its id yet, so that it cannot send heartbeats."""

    def metadata(self, protocol: str) -> bytes:
        """What it said of itself for `protocol`, which it knows."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: set[str]) -> str:
        """The one of `candidates` that it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicMembers:
    """By member id, in the order in which they came."""

    __slots__ = (
        "_by_id",
        "_static",
        "_supported",
        "joined_count",
        "leader",
        "pending",
        "pending_sync",
    )

    def __init__(self) -> None:
        self._by_id: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._supported: Counter[str] = Counter()
        self.joined_count = 0
        self.leader: str | None = None
        self.pending: set[str] = set()
        """Ids that were given to somebody who has not come back with it (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Who has joined this generation and not asked for its assignment."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._by_id[member_id]

    def find(self, member_id: str) -> ClassicMember | None:
        return self._by_id.get(member_id)

    def static_member_id(self, group_instance_id: str) -> str | None:
        """Under which id the instance is a member, if it is."""
        return self._static.get(group_instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest of them may take to come back."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def begin_join(self, member: ClassicMember, token: Token) -> None:
        """`member` has joined, and waits for the others."""
        assert member.awaiting_join is None
        member.awaiting_join = token
        self.joined_count += 1  # M5

    def end_join(self, member: ClassicMember) -> Token | None:
        """The request with which `member` joined, if it waits; it does not any more."""
        token, member.awaiting_join = member.awaiting_join, None
        self.joined_count -= token is not None
        return token

    @property
    def have_all_joined(self) -> bool:
        """Nobody is waited for, not even who was only given an id."""
        return not self.pending and self.joined_count == len(self)

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._by_id
        self.pending.discard(member.member_id)  # M4
        self._by_id[member.member_id] = member
        self._supported.update(_names(member.protocols))  # M2
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id  # M3
        if self.leader is None:
            self.leader = member.member_id  # M1

    def remove(self, member_id: str) -> ClassicMember | None:
        """Forget a member, or an id that is pending."""
        self.pending.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self._by_id.pop(member_id, None)
        if member is None:
            return None
        self._forget_protocols(member)
        instance_id = member.group_instance_id
        if instance_id is not None and self._static.get(instance_id) == member_id:
            del self._static[instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        return member

    def replace_static(self, old_member_id: str, new_member_id: str) -> ClassicMember:
        """The instance of `old_member_id` is another process now. It stays what it was, leader too.

        The place among the members stays as well: who is asked first does not change.
        """
        member = self._by_id[old_member_id]
        assert member.group_instance_id is not None
        member.member_id = new_member_id
        self._by_id = {known.member_id: known for known in self}
        self._static[member.group_instance_id] = new_member_id
        self.pending_sync.discard(old_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def update_protocols(self, member: ClassicMember, protocols: tuple[JoinProtocol, ...]) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._supported.update(_names(protocols))

    def support_one_of(self, protocols: Sequence[JoinProtocol]) -> bool:
        """Is there a protocol among these that every member knows?"""
        return any(self._supported[name] == len(self) for name, _ in protocols)

    def selected_protocol(self) -> str:
        """What every member knows and most like best; of equals, what the eldest voter likes."""
        candidates = {name for name, known in self._supported.items() if known == len(self)}
        assert candidates
        votes = Counter(member.vote(candidates) for member in self)
        return max(votes, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one who has joined; False if nobody has."""
        assert self.leader is not None  # M1
        if self._by_id[self.leader].awaiting_join is not None:
            return True
        joined = (member.member_id for member in self if member.awaiting_join is not None)
        chosen = next(joined, None)
        if chosen is None:
            return False
        self.leader = chosen
        return True

    def as_joined(self, protocol: str) -> tuple[JoinedMember, ...]:
        """All of them, as the leader is told."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol))
            for member in self
        )

    def _forget_protocols(self, member: ClassicMember) -> None:
        self._supported.subtract(_names(member.protocols))
        self._supported = +self._supported


def _names(protocols: Sequence[JoinProtocol]) -> set[str]:
    return {name for name, _ in protocols}
