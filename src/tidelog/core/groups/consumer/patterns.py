"""Which topics a regular expression stands for, in time that grows with their names alone.

An expression becomes a list of steps, and matching is knowing after each character at which steps
one can be: a set, of which there are few, so what follows from a set and a character is remembered.
No expression takes longer than its length times that of the names it is matched against, and
whoever wants something for which this is too long as well is told so.

    R1  An expression matches a topic if it matches all of its name.
    R2  What cannot be matched like this is refused before anybody waits for it: it is no RE2
        (`pattern_parser.py`), or it has more than STEPS_MAX steps once repetitions are written out.
        Parts that need no step, `()`, are counted as if they did: writing them out takes time too.
    R3  Nobody waits for longer than VISITS_MAX steps take: about half a second. A set of characters
        is looked through once for each character, and counts as what that takes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.core.groups.consumer.pattern_parser import (
    Anchor,
    Choice,
    Node,
    OneOf,
    Repeat,
    Sequence,
    parse,
)

STEPS_MAX: Final = 10_000
# Sets of steps that are remembered. Forgetting them costs time, never an answer.
REMEMBERED_MAX: Final = 2_000
VISITS_MAX: Final = 300_000
RANGES_PER_VISIT: Final = 8
"""Looking through so many ranges of a set takes as long as one step does."""

_MATCHED: Final = -1
_OUTSIDE: Final = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """Goes on at `following` past a character, past an anchor, or (a fork) without either."""

    what: OneOf | Anchor | None
    following: tuple[int, ...]


Steps = frozenset[int]


class Pattern:
    """A regular expression, ready to be matched. Raises RequestRefused if it is none. R2"""

    def __init__(self, expression: str) -> None:
        self._steps: list[_Step] = []
        self._written_count = 0
        self._expression = expression
        self._start = self._add(parse(expression), _MATCHED)
        self._next: dict[tuple[Steps, str, str], Steps] = {}
        # By the place of a set in memory: copies that a repetition makes are one.
        self._held: dict[tuple[int, str], bool] = {}
        self.visits = 0

    def matches(self, name: str) -> bool:
        """R1"""
        at: Steps = frozenset((self._start,))
        before = _OUTSIDE
        for character in name:
            at = self._after(at, before, character)
            if not at:
                return False
            before = character
        return _MATCHED in self._reachable(at, before, _OUTSIDE)

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Those of `names` that match. Raises RequestRefused if that takes too long. R3"""
        self.visits = 0
        return frozenset(name for name in names if self.matches(name))

    def _add(self, node: Node, following: int) -> int:
        """The number of the step that begins `node`; what comes behind it is `following`."""
        self._written_count += 1
        if self._written_count > STEPS_MAX:
            raise self._too_many_steps()  # R2
        match node:
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._add(part, following)
                return following
            case Choice(options):
                return self._step(None, *(self._add(option, following) for option in options))
            case Repeat():
                return self._add_repeat(node, following)
        return self._step(node, following)

    def _add_repeat(self, node: Repeat, following: int) -> int:
        start = following
        if node.most is None:
            start = self._step(None, following)
            again = self._add(node.part, start)
            self._steps[start] = _Step(None, (again, following))
        else:
            for _ in range(node.most - node.least):
                start = self._step(None, self._add(node.part, start), following)
        for _ in range(node.least):
            start = self._add(node.part, start)
        return start

    def _step(self, what: OneOf | Anchor | None, *following: int) -> int:
        if len(self._steps) == STEPS_MAX:
            raise self._too_many_steps()
        self._steps.append(_Step(what, following))
        return len(self._steps) - 1

    def _too_many_steps(self) -> RequestRefused:
        return self._refused(f"it has more than {STEPS_MAX} steps")

    def _refused(self, reason: str) -> RequestRefused:
        return RequestRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{self._expression[:100]}` is too large: {reason}.",
        )

    def _after(self, at: Steps, before: str, character: str) -> Steps:
        """Where one can be once `character` has been read."""
        key = at, before, character
        known = self._next.get(key)
        if known is None:
            reached = [
                self._steps[number]
                for number in self._reachable(at, before, character)
                if number != _MATCHED
            ]
            known = frozenset(
                step.following[0]
                for step in reached
                if isinstance(step.what, OneOf) and self._holds(step.what, character)
            )
            if len(self._next) == REMEMBERED_MAX:
                self._next.clear()
            self._next[key] = known
        return known

    def _holds(self, one: OneOf, character: str) -> bool:
        key = id(one), character
        known = self._held.get(key)
        if known is None:
            self._visit(len(one.ranges) // RANGES_PER_VISIT)
            if len(self._held) == REMEMBERED_MAX:
                self._held.clear()
            known = self._held[key] = one.holds(character)
        return known

    def _reachable(self, at: Steps, before: str, after: str) -> set[int]:
        """Where one can be without reading anything, between two characters."""
        found: set[int] = set()
        left = list(at)
        while left:
            number = left.pop()
            if number in found:
                continue
            found.add(number)
            if number == _MATCHED:
                continue
            step = self._steps[number]
            if step.what is None or (
                isinstance(step.what, Anchor) and _is_at(step.what, before, after)
            ):
                left += step.following
        self._visit(len(found))
        return found

    def _visit(self, count: int) -> None:
        """R3"""
        self.visits += count
        if self.visits > VISITS_MAX:
            raise self._refused("it takes too long to match all topics")


def _is_at(anchor: Anchor, before: str, after: str) -> bool:
    match anchor.place:
        case "start":
            return before == _OUTSIDE
        case "end":
            return after == _OUTSIDE
    is_boundary = _is_word(before) != _is_word(after)
    return is_boundary == (anchor.place == "boundary")


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")
