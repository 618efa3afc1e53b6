"""What operators are told about transactions (DescribeTransactions, ListTransactions)."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.base.ids import ProducerId
from tidelog.core.groups.consumer.patterns import Pattern
from tidelog.records.transactions import (
    STATES_BY_TITLE,
    TransactionMetadata,
    TransactionState,
)

ANY_DURATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    """Which transactional ids are asked for; whatever is empty asks for all."""

    states: frozenset[str] = frozenset()
    """By the names of Kafka's tools. A name that means nothing matches nothing."""
    producer_ids: frozenset[ProducerId] = frozenset()
    longer_than_ms: int = ANY_DURATION
    pattern: Pattern | None = None
    """Of the whole transactional id."""

    @property
    def unknown_states(self) -> tuple[str, ...]:
        return tuple(sorted(self.states - STATES_BY_TITLE.keys()))

    def admits(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        return (
            (not self.producer_ids or metadata.producer_id in self.producer_ids)
            and (not self.states or metadata.state.title in self.states)
            and (self.longer_than_ms < 0 or now_ms - metadata.start_ms > self.longer_than_ms)
            and (self.pattern is None or self.pattern.matches(metadata.transactional_id))
        )


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """One line of a list."""

    transactional_id: str
    producer_id: ProducerId
    state: TransactionState


def pattern_of(expression: str | None) -> Pattern | None:
    """What ids are matched with. Raises RequestRefused if it is no regular expression."""
    return Pattern(expression) if expression else None


def listed(
    transactions: Iterable[TransactionMetadata], wanted: TransactionFilter, now_ms: int
) -> tuple[ListedTransaction, ...]:
    """Those that `wanted` admits."""
    return tuple(
        ListedTransaction(metadata.transactional_id, metadata.producer_id, metadata.state)
        for metadata in transactions
        if wanted.admits(metadata, now_ms)
    )
