"""What the controller makes of a request: an answer for each part, and the facts to write down.

A decision is made against one image and is void with it: the runner makes the next one only after
the changes of this one are stored and applied.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.base.errors import ErrorCode
from tidelog.core.controller.changes import Change
from tidelog.core.controller.requests import ConfigOutcome, TopicOutcome

Outcome = TypeVar("Outcome", TopicOutcome, ConfigOutcome)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Outcome]):
    """`outcomes` hold once `changes` are stored."""

    outcomes: list[Outcome]
    changes: list[Change]

    def failed(self, code: ErrorCode, message: str) -> list[Outcome]:
        """The outcomes if the changes could not be stored: what was refused stays refused."""
        return [
            outcome.refused(code, message) if outcome.error is ErrorCode.NONE else outcome
            for outcome in self.outcomes
        ]

    def void(self, code: ErrorCode, message: str) -> list[Outcome]:
        """The outcomes if it was not for this broker to decide: nothing of it counts."""
        return [outcome.refused(code, message) for outcome in self.outcomes]
