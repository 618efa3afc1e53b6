"""What the controller makes of a request: an answer for each part, and the facts to write down.

A decision is made against one image and is void with it: the runner makes the next one only after
the changes of this one are stored and applied.
"""

from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from tidelog.base.errors import ErrorCode
from tidelog.core.controller.changes import Change

# The second says that the change was made and more than was asked for (AlterPartition).
_DONE = frozenset({ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED})


class _Answer(Protocol):
    @property
    def error(self) -> ErrorCode: ...

    def refused(self, code: ErrorCode, message: str) -> Self: ...


Outcome = TypeVar("Outcome", bound=_Answer)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Outcome]):
    """`outcomes` hold once `changes` are stored."""

    outcomes: list[Outcome]
    changes: list[Change]

    def failed(self, code: ErrorCode, message: str) -> list[Outcome]:
        """The outcomes if the changes could not be stored: what was refused stays refused."""
        return [
            outcome.refused(code, message) if outcome.error in _DONE else outcome
            for outcome in self.outcomes
        ]

    def void(self, code: ErrorCode, message: str) -> list[Outcome]:
        """The outcomes if it was not for this broker to decide: nothing of it counts."""
        return [outcome.refused(code, message) for outcome in self.outcomes]
