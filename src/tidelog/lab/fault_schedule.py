"""Which faults happen, and when, as a function of a seed.

A fault names its victim by role - who leads a partition, who follows, who controls - and not by
number, because who that is depends on what happened before. The schedule is the same for the same
seed; what becomes of the cluster is not, as on any machine.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Load between two faults.
_LOAD_S: Final = (0.1, 0.6)
# Away for a moment, which nobody may have noticed, or for longer than a session lasts.
_SHORT_S: Final = (0.0, 1.0)
_LONG_SESSIONS: Final = (1.2, 1.8)
_LONG_SHARE: Final = 0.5
_WAITING_SHARE: Final = 0.75
_ENSEMBLE_SHARE: Final = 0.15


class Deed(StrEnum):
    """What is done to a process."""

    KILL = "kill -9"
    PAUSE = "pause"
    RESTART = "restart"


class Victim(StrEnum):
    """To whom."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    ENSEMBLE_LEADER = "ZooKeeper leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`load_s` after the one before, `deed` is done to `victim` (of `partition`) for `away_s`.

    `broker_count` brokers are hit, the victim first. Before the next fault the cluster has to be
    in sync again if `waits_for_sync`.
    """

    number: int
    deed: Deed
    victim: Victim
    partition: int
    broker_count: int
    load_s: float
    away_s: float
    waits_for_sync: bool

    @property
    def kind(self) -> str:
        """The same for all that are alike: `kill -9 leader`."""
        return f"{self.deed} {self.victim}"


def schedule(
    seed: int,
    *,
    fault_count: int,
    partition_count: int,
    at_once_max: int,
    session_timeout_s: float,
    has_ensemble: bool,
) -> tuple[Fault, ...]:
    """The faults of `seed`. A shorter schedule is the beginning of a longer one."""
    chance = random.Random(seed)
    return tuple(
        _fault(
            chance,
            number,
            partition_count=partition_count,
            at_once_max=at_once_max,
            session_timeout_s=session_timeout_s,
            has_ensemble=has_ensemble,
        )
        for number in range(1, fault_count + 1)
    )


def _fault(
    chance: random.Random,
    number: int,
    *,
    partition_count: int,
    at_once_max: int,
    session_timeout_s: float,
    has_ensemble: bool,
) -> Fault:
    deed = chance.choice(list(Deed))
    victim = chance.choice([Victim.LEADER, Victim.FOLLOWER, Victim.CONTROLLER])
    if has_ensemble and chance.random() < _ENSEMBLE_SHARE:
        deed, victim = Deed.KILL, Victim.ENSEMBLE_LEADER
    # ZooKeeper notices a death when the session ends; the embedded coordinator at once.
    may_be_long = deed is Deed.PAUSE or (deed is Deed.KILL and has_ensemble)
    is_long = may_be_long and chance.random() < _LONG_SHARE
    shortest_s, longest_s = _SHORT_S
    if is_long:
        shortest_s, longest_s = (sessions * session_timeout_s for sessions in _LONG_SESSIONS)
    return Fault(
        number=number,
        deed=deed,
        victim=victim,
        partition=chance.randrange(partition_count),
        broker_count=chance.randint(1, at_once_max),
        load_s=chance.uniform(*_LOAD_S),
        away_s=0.0 if deed is Deed.RESTART else chance.uniform(shortest_s, longest_s),
        waits_for_sync=chance.random() < _WAITING_SHARE,
    )
