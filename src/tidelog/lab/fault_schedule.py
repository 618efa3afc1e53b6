"""Which faults happen, and when, as a function of a seed.

Two kinds of schedule. At random, faults come one after the other, each some time after the one
before has ended; every one of them is drawn from all that the cluster allows. What people write
down (`schedule_language.py`) comes at its times, several at once if they say so; the seed decides
what they leave open. Both are the same for the same seed; what becomes of the cluster is not, as
on any machine.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tidelog.lab.fault_kinds import DAMAGE, NETWORK, Deed, Others, Role, Victim
from tidelog.lab.schedule_language import Sentence

# Load between two faults.
_LOAD_S: Final = (0.1, 0.6)
# Away for a moment, which nobody may have noticed, or for longer than a session lasts.
_SHORT_S: Final = (0.0, 1.0)
_LONG_SESSIONS: Final = (1.2, 1.8)
_LONG_SHARE: Final = 0.4
_WAITING_SHARE: Final = 0.75
_DELAY_S: Final = (0.005, 0.3)

_DEEDS: Final[Mapping[Deed, int]] = {
    Deed.KILL: 4,
    Deed.PAUSE: 3,
    Deed.STOP: 2,
    Deed.CUT: 3,
    Deed.SLOW: 1,
    Deed.EXPIRE: 1,
    Deed.FILL_DISK: 1,
    Deed.TEAR: 1,
    Deed.CORRUPT: 1,
}
_ROLES: Final[Mapping[Role, int]] = {
    Role.LEADER: 4,
    Role.FOLLOWER: 2,
    Role.CONTROLLER: 2,
    Role.GROUP_COORDINATOR: 1,
    Role.TRANSACTION_COORDINATOR: 1,
    Role.RANDOM: 1,
    Role.MINORITY: 1,
    Role.MAJORITY: 1,
    Role.ALL: 1,
    Role.ZOOKEEPER_LEADER: 2,
}
_SINGLE: Final = frozenset(set(Role) - {Role.MINORITY, Role.MAJORITY, Role.ALL})
# Done to one broker at a time: where all replicas lose their last batch, it is lost.
_TO_ONE: Final = DAMAGE | {Deed.FILL_DISK}

T = TypeVar("T", Deed, Role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`deed` is done to `victim` for `away_s`.

    `partition` is whose leader or follower it is; `others` from whom a broker is cut off, `delay_s`
    how slow its way is; `chosen` is any number, to choose by whatever is left to choose.
    """

    number: int
    deed: Deed
    victim: Victim
    partition: int
    others: Others
    delay_s: float
    away_s: float
    chosen: int

    @property
    def kind(self) -> str:
        """The same for all that are alike: `cut leader from clients`."""
        whom = f" from {self.others}" if self.deed in NETWORK else ""
        return f"{self.deed} {self.victim}{whom}"


@dataclass(frozen=True, slots=True)
class PacedFault:
    """A fault that comes `load_s` after the one before is over.

    The cluster has to be in sync again before the next if `waits_for_sync`.
    """

    fault: Fault
    load_s: float
    waits_for_sync: bool

    @property
    def needs_sync(self) -> bool:
        """Whether others must have everything before it happens."""
        return self.fault.deed in DAMAGE


@dataclass(frozen=True, slots=True)
class TimedFault:
    """A fault that comes `at_s` after the beginning, whatever else goes on."""

    at_s: float
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """What can be done to a cluster."""

    has_ensemble: bool
    has_network: bool
    has_small_disks: bool
    can_expire: bool
    at_once_max: int
    """How many brokers a fault may hit."""
    broker_count: int
    partition_count: int
    session_timeout_s: float

    def deeds(self) -> list[Deed]:
        missing = {
            *(NETWORK if not self.has_network else ()),
            *({Deed.FILL_DISK} if not self.has_small_disks else ()),
            *({Deed.EXPIRE} if not self.can_expire else ()),
        }
        return [deed for deed in Deed if deed not in missing]

    def roles(self) -> list[Role]:
        sizes = {
            Role.MINORITY: max(1, (self.broker_count - 1) // 2),
            Role.MAJORITY: self.broker_count // 2 + 1,
            Role.ALL: self.broker_count,
        }
        return [
            role
            for role in Role
            if sizes.get(role, 1) <= self.at_once_max
            and (role is not Role.ZOOKEEPER_LEADER or self.has_ensemble)
        ]

    def others(self) -> list[Others]:
        return [each for each in Others if each is not Others.ZOOKEEPER or self.has_ensemble]


def random_faults(seed: int, *, fault_count: int, possible: Possible) -> tuple[PacedFault, ...]:
    """The faults of `seed`. A shorter schedule is the beginning of a longer one."""
    chance = random.Random(seed)
    return tuple(_paced(chance, number, possible) for number in range(1, fault_count + 1))


def timeline(
    sentences: Sequence[Sentence], *, seed: int, possible: Possible
) -> tuple[TimedFault, ...]:
    """When what happens, in that order."""
    found = [
        each
        for index, sentence in enumerate(sentences)
        for each in _repetitions(sentence, random.Random(f"{seed}/{index}"), possible)
    ]
    found.sort(key=lambda each: each.at_s)
    return tuple(
        replace(each, fault=replace(each.fault, number=number))
        for number, each in enumerate(found, start=1)
    )


def _repetitions(
    sentence: Sentence, chance: random.Random, possible: Possible
) -> Iterator[TimedFault]:
    for index in range(sentence.times):
        fault = _draw(chance, 0, possible, sentence.deed, sentence.victim)
        if sentence.deed is not None:
            fault = replace(fault, others=sentence.others, delay_s=sentence.delay_s)
        if sentence.away_s is not None:
            fault = replace(fault, away_s=sentence.away_s)
        yield TimedFault(sentence.first_at_s + index * sentence.every_s, fault)


def _paced(chance: random.Random, number: int, possible: Possible) -> PacedFault:
    fault = _draw(chance, number, possible, None, None)
    waits = chance.random() < _WAITING_SHARE
    return PacedFault(fault, chance.uniform(*_LOAD_S), waits or fault.deed in DAMAGE)


def _draw(
    chance: random.Random,
    number: int,
    possible: Possible,
    given_deed: Deed | None,
    given_victim: Victim | None,
) -> Fault:
    deed = given_deed or _chosen(chance, _DEEDS, possible.deeds())
    roles = [role for role in possible.roles() if deed not in _TO_ONE or role in _SINGLE]
    victim = given_victim or _chosen(chance, _ROLES, roles)
    if victim is Role.ZOOKEEPER_LEADER and given_deed is None:
        deed = Deed.KILL
    return Fault(
        number=number,
        deed=deed,
        victim=victim,
        partition=chance.randrange(possible.partition_count),
        others=chance.choice(possible.others()),
        delay_s=chance.uniform(*_DELAY_S),
        away_s=0.0 if deed is Deed.EXPIRE else _away_s(chance, possible.session_timeout_s),
        chosen=chance.randrange(2**32),
    )


def _away_s(chance: random.Random, session_timeout_s: float) -> float:
    if chance.random() < _LONG_SHARE:
        return chance.uniform(*(sessions * session_timeout_s for sessions in _LONG_SESSIONS))
    return chance.uniform(*_SHORT_S)


def _chosen(chance: random.Random, weights: Mapping[T, int], among: Iterable[T]) -> T:
    allowed = list(among)
    (found,) = chance.choices(allowed, [weights[each] for each in allowed])
    return found
