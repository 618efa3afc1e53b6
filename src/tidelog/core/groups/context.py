"""What the groups of one shard share: the time, their timers, and what they have decided so far.

A shard sets the time and hands an event to a group. The group answers and writes here, and the
shard takes out what came together (`take_effects`).
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.groups import GroupsConfig
from tidelog.core.coordinators import Effect, Effects, Perform, Reply, Token, Transactional, Write
from tidelog.core.deadlines import Deadlines
from tidelog.core.groups.topics import NO_TOPICS, Topics

ASSIGNED_AT_ONCE_MAX: Final = 10_000
"""Members, partitions and subscriptions that an assignment looks at while everybody else waits: up
to about ten milliseconds. A larger one is made elsewhere."""

NO_CONFIGS: Final[Mapping[str, ConsumerGroupsConfig]] = MappingProxyType({})
"""No group has settings of its own."""


class Timer(Enum):
    """What is due for a group, or for one of its members."""

    JOIN = "the members have had their time to join"
    SYNC = "the members have had their time to ask for their assignment"
    SESSION = "a member has not been heard of"
    PENDING = "a member that was given its id has not come back with it"
    REVOCATION = "a member of a consumer group has not given up what it should"
    ASSIGNMENT = "a consumer group may have its next assignment"


class TimerName(NamedTuple):
    """Whose time is up; `member_id` is empty if it is the group's."""

    group_id: str
    timer: Timer
    member_id: str = ""


class GroupContext:
    """One per shard. `now_ms` is the time of the event that is being decided.

    `consumer_configs` has those groups that have settings of their own.
    """

    __slots__ = (
        "_effects",
        "_records",
        "_transactional",
        "assigned_at_once_max",
        "config",
        "consumer_config",
        "consumer_configs",
        "now_ms",
        "record_max_bytes",
        "timers",
        "topics",
    )

    def __init__(
        self,
        *,
        config: GroupsConfig,
        record_max_bytes: int,
        consumer_config: ConsumerGroupsConfig | None = None,
        consumer_configs: Mapping[str, ConsumerGroupsConfig] = NO_CONFIGS,
        topics: Topics = NO_TOPICS,
        assigned_at_once_max: int = ASSIGNED_AT_ONCE_MAX,
    ) -> None:
        self.config = config
        self.assigned_at_once_max = assigned_at_once_max
        self.consumer_config = consumer_config or ConsumerGroupsConfig()
        self.consumer_configs = consumer_configs
        self.topics = topics
        self.record_max_bytes = record_max_bytes
        self.now_ms = 0
        self.timers: Deadlines[TimerName] = Deadlines()
        self._effects: list[Effect] = []
        # The write that is being put together, and whose transaction it belongs to.
        self._records: list[object] = []
        self._transactional: Transactional | None = None

    def consumer_config_of(self, group_id: str) -> ConsumerGroupsConfig:
        """What counts for a group: its own settings, if it has any, over those of the broker."""
        return self.consumer_configs.get(group_id, self.consumer_config)

    def write(self, *records: object, transactional: Transactional | None = None) -> None:
        """Say in the log what has been decided.

        What is decided in one go is one write: a group that is taken back under one protocol is
        there under the other, also for who finds no more than a part of the log.
        """
        if transactional != self._transactional:
            self._end_write()
            self._transactional = transactional
        self._records += records

    def _end_write(self) -> None:
        if self._records:
            self._effects.append(Write(tuple(self._records), self._transactional))
            self._records.clear()

    def reply(self, token: Token, answer: object, *, is_held: bool = True) -> None:
        """Answer a request, once all that was written up to here is committed. W2"""
        self._end_write()
        self._effects.append(Reply(token, answer, is_held))

    def perform(self, deed: object) -> None:
        """Have somebody do what a machine does not, after what was written up to here."""
        self._end_write()
        self._effects.append(Perform(deed))

    def set_timer(self, name: TimerName, delay_ms: int) -> None:
        """`name` is due in `delay_ms`, and not at any time that was set before."""
        self.timers.set(name, self.now_ms + delay_ms)

    def discard_effects(self) -> None:
        """What was decided last is refused after all, before anybody knew of it."""
        self._effects.clear()
        self._records.clear()

    def take_effects(self) -> Effects:
        """Everything decided since the last time."""
        self._end_write()
        effects = tuple(self._effects)
        self._effects.clear()
        return effects
