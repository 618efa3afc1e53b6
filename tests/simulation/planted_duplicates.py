"""Bugs of de-duplication to be found, planted as those of `planted.py` are.

One more, a stale `.ids` file that is believed, is planted in `tests/unit/storage/test_digests.py`.
"""

from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from tidelog.base.ids import Offset
from tidelog.broker import deduplication
from tidelog.broker.deduplication import Deduplicator, _Reading
from tidelog.core.deduplication.index import Duplicates, IdIndex
from tidelog.records.digest import BatchDigest
from tidelog.records.id_table import int64s_in
from tidelog.storage.log import Log

SOME_AT_ONCE = 2
"""Simulated producers send some batches with more records, and some without: in the place of
AT_ONCE_RECORDS it leaves the former to a thread, and the loop is done with the latter meanwhile."""


@contextmanager
def begin_with_an_empty_index() -> Iterator[None]:
    """A new leader remembers what it is sent, not what is in its log."""

    def nothing(log: Log, *, remembered_ms: int) -> tuple[Offset, int]:
        return log.log_end_offset, -1

    with patch.object(deduplication, "first_needed", nothing):
        yield


@contextmanager
def acknowledge_before_the_first_copy_is_committed() -> Iterator[None]:
    """That it was seen is taken for that it is safe."""
    with patch.object(Duplicates, "end_offset", property(lambda _self: Offset(0))):
        yield


@contextmanager
def count_ids_of_aborted_transactions() -> Iterator[None]:
    """G4: an id counts as seen however its transaction ended."""
    settle = IdIndex._settle

    def as_commit(self: IdIndex, producer_id: int, *, is_committed: bool) -> None:
        settle(self, producer_id, is_committed=True)

    with patch.object(IdIndex, "_settle", as_commit):
        yield


@contextmanager
def keep_ids_that_were_cut_off() -> Iterator[None]:
    """I1: the index goes on with a log that was truncated, and knows what is not there any more."""
    on_batch, judge = IdIndex.on_batch, IdIndex.judge

    def is_of(self: _Reading, log: Log) -> bool:
        self.index.end_offset = min(self.index.end_offset, log.log_end_offset)
        return self._log is log

    def wherever_it_is(self: IdIndex, digest: BatchDigest) -> None:
        self.end_offset = Offset(min(self.end_offset, digest.base_offset))
        on_batch(self, digest)

    def within_the_log(self: IdIndex, *batch: Any, **terms: Any) -> Duplicates | None:
        """Who waits for what is beyond the end of the log waits for ever, and so does the test."""
        seen = judge(self, *batch, **terms)
        if seen is None:
            return None
        offsets = [min(one, self.end_offset - 1) for one in int64s_in(seen.offsets)]
        return seen._replace(
            offsets=array("q", offsets).tobytes(),
            smallest_offset=min(offsets),
            largest_offset=max(offsets),
        )

    with (
        patch.object(_Reading, "is_of", is_of),
        patch.object(IdIndex, "on_batch", wherever_it_is),
        patch.object(IdIndex, "judge", within_the_log),
    ):
        yield


@contextmanager
def judge_before_many_ids_are_remembered() -> Iterator[None]:
    """I3: an index that a thread is about to tell of a batch passes for one that was told."""
    on_batch, tell = IdIndex.on_batch, Deduplicator._tell

    def and_go_on(self: Deduplicator, digest: BatchDigest) -> None:
        was_busy = self._is_busy
        tell(self, digest)
        if self._is_busy and not was_busy:
            assert self.index is not None
            self._is_busy = False
            self.index.end_offset = Offset(digest.last_offset + 1)

    def wherever_it_is(self: IdIndex, digest: BatchDigest) -> None:
        end_offset = self.end_offset
        self.end_offset = Offset(min(end_offset, digest.base_offset))
        on_batch(self, digest)
        self.end_offset = max(end_offset, self.end_offset)

    with (
        patch.object(deduplication, "AT_ONCE_RECORDS", SOME_AT_ONCE),
        patch.object(Deduplicator, "_tell", and_go_on),
        patch.object(IdIndex, "on_batch", wherever_it_is),
    ):
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    planted.__name__: planted
    for planted in (
        begin_with_an_empty_index,
        acknowledge_before_the_first_copy_is_committed,
        count_ids_of_aborted_transactions,
        keep_ids_that_were_cut_off,
        judge_before_many_ids_are_remembered,
    )
}
