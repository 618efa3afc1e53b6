"""A shard that is loaded from what counts is the one that is loaded from everything (P3, D3).

Whatever a log holds: commits in transactions and outside, their ends, tombstones, groups of both
protocols. Not the same is the order in which groups and partitions are listed; compaction changes
that as well.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from itertools import count
from operator import attrgetter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hash_keys import GROUP as PAYMENTS
from tests.support.hash_keys import HASH_KEY, OTHER_GROUP
from tests.unit.core.groups.consumer.consumers import ConsumerHosted
from tests.unit.core.groups.found_records import FOUND
from tests.unit.core.groups.hosted import GROUP
from tests.unit.records.test_superseded import NewSuperseded, Written
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicId, TopicPartition
from tidelog.broker.group_shards import GroupShards
from tidelog.broker.transaction_shards import TransactionShards
from tidelog.core.groups.shard import GroupShard
from tidelog.core.transactions.answers import TransactionLimits
from tidelog.core.transactions.coordinator import TransactionShard
from tidelog.records.batch import read_header
from tidelog.records.compiled import compiled
from tidelog.records.consumer_groups import PartitionMetadataRecord
from tidelog.records.control import ControlType, read_transaction_end
from tidelog.records.groups import CommittedOffset, GroupRecord, OffsetCommitRecord
from tidelog.records.record import decode_records
from tidelog.records.superseded import KEYS_MAX, SupersededInPython
from tidelog.records.transactions import (
    TransactionForgotten,
    TransactionMetadata,
    TransactionState,
)
from tidelog.wire.group_records import decode_group_record, encode_group_record
from tidelog.wire.transaction_records import decode_transaction_record, encode_transaction_record

BOTH = pytest.mark.parametrize(
    "new", [SupersededInPython, *([] if compiled is None else [compiled.Superseded])]
)
PRODUCERS = st.sampled_from([7, 8])
_LIMITS = TransactionLimits(
    timeout_max_ms=1,
    id_expiration_ms=1,
    abort_interval_ms=1,
    expiry_interval_ms=1,
    wait_max_ms=1,
    record_max_bytes=1_000_000,
)

_values = st.builds(
    CommittedOffset,
    st.integers(0, 99),
    st.just(-1),
    st.sampled_from(["", "é"]),
    st.integers(1, 3),
    st.sampled_from([-1, 5]),
    st.sampled_from([TopicId(UUID(int=0)), TopicId(UUID(int=1))]),
)
_commits = st.builds(
    OffsetCommitRecord,
    st.sampled_from([GROUP, "other"]),
    st.builds(TopicPartition, st.just("orders"), st.integers(0, 1)),
    st.one_of(_values, _values, st.none()),
)
# Nobody writes these any more but to take them back.
_found = FOUND.filter(
    lambda record: not isinstance(record, PartitionMetadataRecord) or record.is_tombstone
)
Step = Callable[[Written], Written]


def _write(records: list[GroupRecord], producer_id: int | None) -> Step:
    pairs = [encode_group_record(record) for record in records]
    return lambda log: log.write(*pairs, producer_id=producer_id)


_writes = st.builds(
    _write,
    st.lists(st.one_of(_commits, _commits, _found), min_size=1, max_size=3),
    st.one_of(st.none(), st.none(), PRODUCERS),
)
_ends = st.builds(
    lambda producer_id, is_commit: lambda log: log.end(producer_id, is_commit=is_commit),
    PRODUCERS,
    st.booleans(),
)
_undecodable = st.builds(
    lambda producer_id: lambda log: log.control((b"\0\0\0\1", b"?"), producer_id=producer_id),
    PRODUCERS,
)


@BOTH
@given(
    steps=st.lists(st.one_of(_writes, _writes, _ends, _undecodable), max_size=14),
    keys_max=st.sampled_from([KEYS_MAX, KEYS_MAX, 0, 1, 2, 4]),
)
def test_a_group_shard_is_the_same(new: NewSuperseded, steps: list[Step], keys_max: int) -> None:
    """Also where there are more keys than may be noted."""
    log = Written()
    for step in steps:
        step(log)
    assert known(_loaded(log, new, keys_max)) == known(_loaded_one_by_one(log))


@BOTH
def test_a_group_whose_name_was_made_to_collide_takes_nothing_from_another(
    new: NewSuperseded,
) -> None:
    """P3"""
    log, partition = Written(), TopicPartition("orders", 0)
    for group, offset in ((PAYMENTS, 1_000_000), (OTHER_GROUP, 1)):
        value = CommittedOffset(offset, -1, "", 1, -1, TopicId(UUID(int=0)))
        log.write(encode_group_record(OffsetCommitRecord(group, partition, value)))
    shard = _loaded(log, new)
    assert known(shard) == known(_loaded_one_by_one(log))
    committed = shard._offsets.committed(PAYMENTS, partition)
    assert committed is not None
    assert committed.offset == 1_000_000


def _loaded(log: Written, new: NewSuperseded, keys_max: int = KEYS_MAX) -> GroupShard:
    """As `ShardRunner` does."""
    shard = ConsumerHosted().new_shard()
    superseded = new(GroupShards.kinds, GroupShards.kinds_in_transactions, HASH_KEY, keys_max)
    for batch in log.batches:
        superseded.note(batch, 0)
    for batch in log.batches:
        for key, value, producer, is_committed in superseded.remaining(batch, 0)[0]:
            if key is None:
                assert producer is not None
                shard.on_marker(ProducerId(producer[0]), is_commit=is_committed)
            else:
                _replay(shard, key, value, None if producer is None else producer[0])
    return shard


def _loaded_one_by_one(log: Written) -> GroupShard:
    shard = ConsumerHosted().new_shard()
    for batch in log.batches:
        header = read_header(batch, 0)
        if header.is_control:
            end = read_transaction_end(batch)
            if end is None:
                continue
            is_commit = end.control_type is ControlType.COMMIT
            shard.on_marker(ProducerId(header.producer_id), is_commit=is_commit)
            continue
        for record in decode_records(batch):
            assert record.key is not None
            producer_id = header.producer_id if header.is_transactional else None
            _replay(shard, record.key, record.value, producer_id)
    return shard


def _replay(shard: GroupShard, key: bytes, value: bytes | None, producer_id: int | None) -> None:
    record = decode_group_record(key, value)
    assert record is not None
    if producer_id is None:
        shard.replay(record)
    else:
        shard.replay_transactional(record, ProducerId(producer_id))


def known(shard: GroupShard) -> object:
    """All that a shard knows; of the order of commits which of two is the later."""
    offsets = shard._offsets
    commits = [one for group in offsets._committed.values() for one in group.values()]
    commits += [one for pending in offsets._pending.values() for one in pending.values()]
    ranks = {one.order: rank for rank, one in enumerate(sorted(commits, key=attrgetter("order")))}
    committed, pending = (
        {
            outer: {key: (ranks[one.order], one.value) for key, one in inner.items()}
            for outer, inner in one_by_one.items()
        }
        for one_by_one in (offsets._committed, offsets._pending)
    )
    return committed, pending, offsets._open, _plain(shard._groups), shard.next_deadline_ms


def _plain(value: object) -> object:
    """`value` as something that compares by what is in it; what all groups share aside."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Set | str | bytes | int | None):
        return value
    if isinstance(value, Sequence):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return type(value), {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    names = {name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())}
    names |= getattr(value, "__dict__", {}).keys()
    state = {name: getattr(value, name, None) for name in names if name.strip("_") != "context"}
    return type(value), {name: _plain(each) for name, each in state.items()}


_transactions = st.builds(
    TransactionMetadata,
    transactional_id=st.sampled_from(["a", "b"]),
    producer_id=PRODUCERS.map(ProducerId),
    previous_producer_id=st.just(ProducerId(-1)),
    next_producer_id=st.just(ProducerId(-1)),
    producer_epoch=st.integers(0, 3).map(ProducerEpoch),
    timeout_ms=st.just(1_000),
    state=st.sampled_from([TransactionState.ONGOING, TransactionState.PREPARE_COMMIT]),
    partitions=st.just(frozenset((TopicPartition("orders", 0),))),
    start_ms=st.just(1),
    last_update_ms=st.integers(1, 9),
    client_version=st.just(2),
)
_forgotten = st.builds(TransactionForgotten, st.sampled_from(["a", "b"]))


@BOTH
@given(st.lists(st.one_of(_transactions, _forgotten), max_size=8))
def test_a_transaction_shard_is_the_same(
    new: NewSuperseded, records: list[TransactionMetadata | TransactionForgotten]
) -> None:
    loaded, one_by_one = (
        TransactionShard(
            limits=_LIMITS,
            coordinator_epoch=1,
            take_producer_id=lambda: ProducerId(9),
            numbers=count(1),
        )
        for _ in range(2)
    )
    log = Written()
    for record in records:
        log.write(encode_transaction_record(record))
        one_by_one.replay(record)
    superseded = new(
        TransactionShards.kinds, TransactionShards.kinds_in_transactions, HASH_KEY, KEYS_MAX
    )
    for batch in log.batches:
        superseded.note(batch, 0)
    for batch in log.batches:
        for key, value, _, _ in superseded.remaining(batch, 0)[0]:
            assert key is not None
            decoded = decode_transaction_record(key, value)
            assert decoded is not None
            loaded.replay(decoded)
    assert loaded._transactions == one_by_one._transactions
