"""What `verify` found, as values: counts and examples for each partition, and a verdict."""

import base64
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.base.ids import TopicPartition

NO_PARTITION: Final = -1
"""Of records that were sent, never acknowledged and are nowhere."""


class Problem(StrEnum):
    """What may be wrong with a record, in the order in which it matters."""

    LOST = "lost"
    ALTERED = "altered"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    MOVED = "moved"
    UNEXPECTED = "unexpected"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS: Final = {
    Problem.LOST: "acknowledged, and not in the log",
    Problem.ALTERED: "key, value or headers are not those that were sent",
    Problem.DUPLICATED: "copies beyond the first",
    Problem.REORDERED: "behind a record that the same producer sent later",
    Problem.MOVED: "not where the acknowledgement said",
    Problem.UNEXPECTED: "in the log, and nobody has sent it",
}


@dataclass(frozen=True, slots=True, order=True)
class Example:
    """One record that is not as it should be."""

    partition: TopicPartition
    offset: int
    """Where it is, or was said to be."""
    id: str
    """Text, or base64 of what is no text; empty if there is none."""
    problem: Problem
    detail: str

    @property
    def shown_id(self) -> str:
        """For a terminal. Who writes records chooses their ids, and not what a terminal does."""
        return "".join(each if each.isprintable() else repr(each)[1:-1] for each in self.id)

    def to_json(self) -> dict[str, object]:
        return {
            "problem": self.problem.value,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.offset,
            "id": self.id,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFindings:
    """Counts of one partition. What is not a problem is only told."""

    partition: TopicPartition
    stored: int
    acknowledged: int
    unacknowledged: int
    """Sent, and failed or never heard of again: in the log or not, both is right."""
    expired: int
    """Acknowledged below the start of the log: retention or DeleteRecords took them."""
    problems: Mapping[Problem, int]

    def count(self, problem: Problem) -> int:
        return self.problems.get(problem, 0)

    def to_json(self) -> dict[str, object]:
        known = self.partition.partition != NO_PARTITION
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition if known else None,
            "stored": self.stored,
            "acknowledged": self.acknowledged,
            "unacknowledged": self.unacknowledged,
            "expired": self.expired,
            **{problem.value: self.count(problem) for problem in Problem},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The verdict on a log, and what it rests upon."""

    partitions: tuple[PartitionFindings, ...]
    examples: tuple[Example, ...]
    unreadable_lines: int
    """Of the ledger."""
    allowed: frozenset[Problem]
    """Problems that are expected here, and leave the verdict alone."""

    @property
    def counts(self) -> Mapping[Problem, int]:
        total: Counter[Problem] = Counter(dict.fromkeys(Problem, 0))
        for each in self.partitions:
            total.update(each.problems)
        return total

    @property
    def is_clean(self) -> bool:
        return not any(
            count for problem, count in self.counts.items() if problem not in self.allowed
        )

    @property
    def stored(self) -> int:
        return sum(each.stored for each in self.partitions)

    @property
    def acknowledged(self) -> int:
        return sum(each.acknowledged for each in self.partitions)

    @property
    def unacknowledged(self) -> int:
        return sum(each.unacknowledged for each in self.partitions)

    @property
    def expired(self) -> int:
        return sum(each.expired for each in self.partitions)

    @property
    def noted(self) -> int:
        """Of how many records the ledger has heard."""
        return self.acknowledged + self.unacknowledged

    def examples_of(self, problem: Problem) -> tuple[Example, ...]:
        return tuple(each for each in self.examples if each.problem is problem)

    def to_json(self) -> dict[str, object]:
        return {
            "clean": self.is_clean,
            "stored": self.stored,
            "acknowledged": self.acknowledged,
            "unacknowledged": self.unacknowledged,
            "expired": self.expired,
            **{problem.value: count for problem, count in self.counts.items()},
            "allowed": sorted(self.allowed),
            "unreadable_lines": self.unreadable_lines,
            "partitions": [each.to_json() for each in self.partitions],
            "examples": [each.to_json() for each in self.examples],
        }


def fewest_examples(examples: Iterable[Example], most: int) -> tuple[Example, ...]:
    """The first `most` of each problem in each partition."""
    kept: Counter[tuple[TopicPartition, Problem]] = Counter()
    chosen = []
    for each in sorted(set(examples)):
        kept[each.partition, each.problem] += 1
        if kept[each.partition, each.problem] <= most:
            chosen.append(each)
    return tuple(chosen)


def id_text(record_id: Collection[int] | None) -> str:
    """An id for people."""
    data = bytes(record_id or b"")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
