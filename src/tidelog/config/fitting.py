"""Settings that were accepted one by one, and do not go together where they are applied.

Whoever accepts a setting cannot know every properties file, nor what a file will say after the next
restart. A broker therefore never refuses what is set: it leaves out what does not fit, says so, and
goes on with the rest.

    F1  Everything is in force if it goes together.
    F2  If not, the narrower setting counts before the wider one, as it does everywhere: a topic's
        own, then one broker's, then that of all brokers; by name among equals.
    F3  Nothing is left out that would fit beside what is in force.
    F4  The same settings over the same file are in force in the same way at every start.

A broker's properties file is never left out: it was checked when the broker started.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from tidelog.base.errors import ConfigError

C = TypeVar("C")


class Scope(StrEnum):
    """For whom a setting was set."""

    TOPIC = "the topic"
    THIS_BROKER = "this broker"
    ALL_BROKERS = "all brokers"
    OTHER_TOPICS = "topics that do not set it"


@dataclass(frozen=True, slots=True)
class Given:
    """A setting as somebody gave it."""

    scope: Scope
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """A setting that is not in force. Why is not part of what it is: two reasons may be true."""

    given: Given
    reason: str = field(compare=False)


def given_in(scope: Scope, settings: Mapping[str, str]) -> list[Given]:
    """`settings` in the order in which they count."""
    return [Given(scope, name, value) for name, value in sorted(settings.items())]


def those_of(scope: Scope, given: Sequence[Given]) -> dict[str, str]:
    return {one.name: one.value for one in given if one.scope is scope}


def fit(
    given: Sequence[Given], attempt: Callable[[Sequence[Given]], C]
) -> tuple[C, tuple[Misfit, ...]]:
    """What `attempt` makes of those of `given` that go together, and those that are left out.

    `attempt` raises ConfigError for what does not go together; nothing at all always does.
    """
    try:
        return attempt(given), ()
    except ConfigError:
        return _fit_one_by_one(given, attempt)


def _fit_one_by_one(
    given: Sequence[Given], attempt: Callable[[Sequence[Given]], C]
) -> tuple[C, tuple[Misfit, ...]]:
    made = attempt(())
    kept: list[Given] = []
    waiting = list(given)
    while True:
        left_out = []
        for one in waiting:
            try:
                made = attempt([*kept, one])
            except ConfigError as error:
                left_out.append(Misfit(one, str(error)))
            else:
                kept.append(one)
        if len(left_out) == len(waiting):
            return made, tuple(left_out)
        # A bound may have been raised after what is above the old one was tried (F3).
        waiting = [misfit.given for misfit in left_out]
