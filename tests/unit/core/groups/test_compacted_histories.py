"""Whoever loads a compacted log knows what the one knows that loads all of it (P3, S5).

The histories of groups of both protocols, and after each step of them their log as compaction would
leave it: half of it done or all, with tombstones or without.
"""

from collections.abc import Iterator
from itertools import product

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.unit.core.groups import test_histories as classic
from tests.unit.core.groups.compacted import Entry, compacted, log_of, replayed
from tests.unit.core.groups.consumer import test_consumer_histories as consumer
from tests.unit.core.groups.hosted import GROUP, Hosted
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.core.groups.consumer.group import ConsumerGroup

_SHARES = (0.5, 1.0)
_OF_CONSUMER_GROUPS = (
    "epoch",
    "metadata_hash",
    "target_epoch",
    "targets",
    "by_id",
    "expressions",
)


def compacted_logs(hosted: Hosted) -> Iterator[list[Entry]]:
    log = log_of(hosted)
    for share, drops_tombstones in product(_SHARES, (False, True)):
        yield compacted(log, share=share, drops_tombstones=drops_tombstones)


class CompactedClassicHistory(classic.GroupHistory):
    @invariant()
    def compacted_log_gives_the_same_shard(self) -> None:
        expected = classic.observe(self.hosted.replayed())
        for log in compacted_logs(self.hosted):
            found = classic.observe(replayed(self.hosted, log))
            assert found.offsets == expected.offsets
            assert found.groups == expected.groups or (not found.groups and is_spent(expected))


def is_spent(seen: classic.Observed) -> bool:
    """Whether there is but one group, that never had members and has no offset any more.

    Nothing but tombstones tells of it, and it is to be deleted when somebody next looks.
    """
    ((listing, _),) = seen.groups.values()
    offsets = [one for answer in seen.offsets for one in answer]
    return (
        (listing.state, listing.protocol_type) == ("Empty", "")
        and all(one.value is None for one in offsets)
        and all(one.error_code is ErrorCode.NONE for one in offsets)
    )


class CompactedOffsets(RuleBasedStateMachine):
    """Offsets alone, in transactions and without, so that all of it is about them."""

    def __init__(self) -> None:
        super().__init__()
        self.hosted = Hosted()

    @rule(
        partition=classic.partitions,
        offset=st.integers(0, 9),
        producer_id=st.none() | st.sampled_from(classic.PRODUCERS),
    )
    def commit(self, partition: TopicPartition, offset: int, producer_id: int | None) -> None:
        self.hosted.commit(offset, partition, producer_id=producer_id)

    @rule(producer_id=st.sampled_from(classic.PRODUCERS), is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        self.hosted.mark(producer_id, is_commit=is_commit)

    @rule(partition=classic.partitions)
    def delete(self, partition: TopicPartition) -> None:
        self.hosted.delete_offsets(partition)

    @invariant()
    def compacted_log_gives_the_same_offsets(self) -> None:
        expected = classic.observe(self.hosted.replayed()).offsets
        for log in compacted_logs(self.hosted):
            assert classic.observe(replayed(self.hosted, log)).offsets == expected


class CompactedConsumerHistory(consumer.GroupHistory):
    @invariant()
    def compacted_log_gives_the_same_shard(self) -> None:
        whole = self.world.replayed()
        expected = whole._groups.get(GROUP)
        for log in compacted_logs(self.world):
            shard = replayed(self.world, log)
            found = shard._groups.get(GROUP)
            assert type(found) is type(expected)
            if isinstance(expected, ConsumerGroup):
                assert isinstance(found, ConsumerGroup)
                for name in _OF_CONSUMER_GROUPS:
                    assert getattr(found.members, name) == getattr(expected.members, name), name
            else:
                assert classic.observe(shard).groups == classic.observe(whole).groups


def test_whatever_classic_groups_did_their_compacted_log_says_the_same() -> None:
    run_state_machine_as_test(
        CompactedClassicHistory, settings=settings(max_examples=40, stateful_step_count=30)
    )


def test_whatever_became_of_offsets_their_compacted_log_says_the_same() -> None:
    run_state_machine_as_test(CompactedOffsets, settings=settings(stateful_step_count=15))


def test_whatever_consumer_groups_did_their_compacted_log_says_the_same() -> None:
    run_state_machine_as_test(
        CompactedConsumerHistory, settings=settings(max_examples=40, stateful_step_count=30)
    )
