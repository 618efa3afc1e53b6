"""At whom a command of the lab is aimed, in words (B3).

    target  ::=  N ...                                        brokers by number
              |  ("leader" | "follower") "of" TOPIC[:PARTITION]
              |  "controller"
              |  ("group" | "transaction") "coordinator" "of" NAME
              |  "minority" | "majority" | "all" | "random"

`of` may be left out, and a partition that is not named is the first. Who that is at the moment is
found by `aiming.py`; nothing here asks a broker.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.lab.fault_kinds import Role
from tidelog.lab.roles import SEVERAL

_PARTITION: Final = re.compile(r"(.+):([0-9]{1,9})")
_TARGETS: Final = (
    "broker numbers, 'leader of TOPIC', 'follower of TOPIC:PARTITION', 'controller', "
    "'group coordinator of GROUP', 'transaction coordinator of ID', 'minority', 'majority', "
    "'all' and 'random'"
)


@dataclass(frozen=True, slots=True)
class BrokersTarget:
    """These, whatever their role."""

    broker_ids: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.broker_ids))


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """Who leads a partition, or follows."""

    role: Role
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.role} of {self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class CoordinatorTarget:
    """Who coordinates the group, or the transactional id, of that name."""

    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role} of {self.name}"


@dataclass(frozen=True, slots=True)
class RoleTarget:
    """The controller, or so many of all brokers."""

    role: Role

    def __str__(self) -> str:
        return str(self.role)


Target = BrokersTarget | PartitionTarget | CoordinatorTarget | RoleTarget


def parse_target(words: Sequence[str]) -> Target:
    """What the words of a command line mean; ConfigError says what they could be."""
    if not words:
        raise ConfigError(f"nobody is named; targets are {_TARGETS}")
    first, *rest = words
    if first.isdecimal():
        return BrokersTarget(tuple(dict.fromkeys(map(_broker_id, words))))
    if first in {Role.LEADER, Role.FOLLOWER}:
        return _partition_target(Role(first), _name(first, rest, "a topic"))
    if first in {"group", "transaction"} and rest[:1] == ["coordinator"]:
        role = Role(f"{first} coordinator")
        return CoordinatorTarget(role, _name(role, rest[1:], "a name"))
    if first in {Role.CONTROLLER, *SEVERAL}:
        if rest:
            raise ConfigError(f"'{' '.join(rest)}' is too much behind '{first}'")
        return RoleTarget(Role(first))
    raise ConfigError(f"'{' '.join(words)}' is nobody; targets are {_TARGETS}")


def _broker_id(word: str) -> int:
    if not word.isdecimal():
        raise ConfigError(f"'{word}' is no number of a broker")
    return int(word)


def _name(role: str, words: Sequence[str], what: str) -> str:
    # Behind `of` comes the name, which may be anything, `of` included.
    names = words[1:] if words[:1] == ["of"] and len(words) > 1 else words
    if len(names) != 1 or words == ["of"]:
        raise ConfigError(f"'{role}' takes 'of' and {what}, not '{' '.join(words)}'")
    return names[0]


def _partition_target(role: Role, name: str) -> PartitionTarget:
    numbered = _PARTITION.fullmatch(name)
    if numbered is None:
        return PartitionTarget(role, name, 0)
    return PartitionTarget(role, numbered[1], int(numbered[2]))
