"""Bugs of transactions to be found, planted as those of `planted.py` are."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tidelog.base.ids import Offset
from tidelog.broker.coordinators import Coordinators, pass_on
from tidelog.broker.follower_runner import FollowerRunner
from tidelog.broker.served_partition import ServedPartition
from tidelog.broker.transaction_shards import TransactionCoordinator
from tidelog.core.groups.offsets import Offsets
from tidelog.core.transactions import coordinator
from tidelog.core.transactions.coordinator import TransactionShard
from tidelog.core.transactions.ending import judge
from tidelog.core.transactions.producers import ProducerStates


@contextmanager
def read_what_is_not_decided() -> Iterator[None]:
    """All that is committed by replication counts as stable."""

    def all_of_it(_self: ProducerStates, high_watermark: Offset) -> Offset:
        return high_watermark

    with patch.object(ProducerStates, "last_stable_offset", all_of_it):
        yield


@contextmanager
def tell_readers_nothing_of_aborts() -> Iterator[None]:
    """The transaction index is not written."""
    with patch.object(ServedPartition, "on_transaction_ended", lambda *_: None):
        yield


@contextmanager
def followers_overlook_aborts() -> Iterator[None]:
    """Who leads next cannot tell readers what was aborted before."""
    append = FollowerRunner._append

    def append_without(self: FollowerRunner, *args: Any) -> None:
        with patch.object(ServedPartition, "on_transaction_ended", lambda *_: None):
            append(self, *args)

    with patch.object(FollowerRunner, "_append", append_without):
        yield


@contextmanager
def leave_prepared_ones_alone() -> Iterator[None]:
    """T4: a new coordinator does not complete what the old one has decided."""
    loaded = TransactionShard.on_loaded

    def timers_only(self: TransactionShard, now_ms: int) -> Any:
        loaded(self, now_ms)
        return ()

    with patch.object(TransactionShard, "on_loaded", timers_only):
        yield


@contextmanager
def count_offsets_before_they_are_decided() -> Iterator[None]:
    """Offsets of a transaction are those of the group at once."""

    def at_once(self: Offsets, record: Any, _producer_id: Any) -> None:
        self.apply(record)

    with patch.object(Offsets, "apply_pending", at_once):
        yield


@contextmanager
def let_go_of_undecided_offsets() -> Iterator[None]:
    """A marker of a commit drops the offsets that it should make count."""
    apply = Offsets.apply_marker

    def as_abort(self: Offsets, producer_id: Any, *, is_commit: bool) -> None:
        apply(self, producer_id, is_commit=False)

    with patch.object(Offsets, "apply_marker", as_abort):
        yield


@contextmanager
def let_fenced_producers_end_transactions() -> Iterator[None]:
    """T1: whoever knows the transactional id ends what is open, in whatever epoch it is."""

    def anybody(known: Any, *, producer_id: Any, producer_epoch: Any, **request: Any) -> Any:
        return judge(
            known,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            **request,
        )

    with patch.object(coordinator, "judge", anybody):
        yield


@contextmanager
def leave_overdue_ones_open() -> Iterator[None]:
    """T6: a transaction ends when its producer says so, or the next of its id."""

    def nothing(self: TransactionShard, now_ms: int) -> list[Any]:
        self._timeouts.due(now_ms)
        return []

    with patch.object(TransactionShard, "_abort_overdue", nothing):
        yield


@contextmanager
def complete_with_the_first_marker() -> Iterator[None]:
    """T3: that one partition has its marker is taken for that all have.

    Most get theirs all the same, because all are sent; chance hardly ever kills a leader within
    that millisecond, so this one is left to `test_commit_death.py`.
    """
    written = TransactionShard.on_markers_written

    def all_at_once(
        self: TransactionShard, transactional_id: str, number: int, partitions: Any, **now: Any
    ) -> Any:
        if self.awaits_markers(transactional_id, number):
            partitions = self._completions[transactional_id].unanswered.copy()
        return written(self, transactional_id, number, partitions, **now)

    with patch.object(TransactionShard, "on_markers_written", all_at_once):
        yield


@contextmanager
def decide_late_requests() -> Iterator[None]:
    """What a coordinator kept for one epoch it decides in another, when others have answered the
    same client meanwhile, which has closed the connection."""

    async def ask_for_nobody(
        transactions: TransactionCoordinator,
        answer: "asyncio.Future[object]",
        ask: "Callable[[], asyncio.Future[object]]",
        coming: "asyncio.Future[None] | None",
    ) -> None:
        if coming is not None:
            await asyncio.wait([coming])
        await transactions.producer_ids.available()
        pass_on(ask(), answer)

    with (
        patch.object(Coordinators, "_epoch", lambda *_: 0),
        patch.object(TransactionCoordinator, "_ask_later", ask_for_nobody),
    ):
        yield


PLANTED_IN_TRANSACTIONS: dict[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        read_what_is_not_decided,
        tell_readers_nothing_of_aborts,
        followers_overlook_aborts,
        leave_prepared_ones_alone,
        count_offsets_before_they_are_decided,
        let_go_of_undecided_offsets,
        let_fenced_producers_end_transactions,
        leave_overdue_ones_open,
        decide_late_requests,
    )
}
