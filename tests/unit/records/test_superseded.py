"""Which records of a coordinator's log need not be replayed: R1-R3 of `records/superseded.py`."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hash_keys import GROUP, HASH_KEY, OTHER_GROUP
from tidelog.base.errors import CorruptBatch
from tidelog.base.ids import TopicPartition
from tidelog.records.batch import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, Codec, stamp
from tidelog.records.compiled import compiled
from tidelog.records.control import ControlType, TransactionEnd, encode_marker, read_transaction_end
from tidelog.records.groups import OffsetCommitRecord
from tidelog.records.ids import fingerprint_in_python
from tidelog.records.record import Record, encode_batch
from tidelog.records.superseded import (
    KEYS_MAX,
    Remaining,
    Superseded,
    SupersededInPython,
    new_superseded,
)
from tidelog.wire.group_records import encode_group_record

NewSuperseded = Callable[[Collection[int], Collection[int], bytes, int], Superseded]

KINDS, KINDS_IN_TRANSACTIONS = (0, 1), (0,)
BOTH = pytest.mark.parametrize(
    "new", [SupersededInPython, *([] if compiled is None else [compiled.Superseded])]
)
A, B = b"\0\0a", b"\0\0b"
OTHER_KIND, PLAIN_ONLY = b"\0\2a", b"\0\1a"
Pair = tuple[bytes | None, bytes | None]


@dataclass
class Written:
    """A log, batch by batch."""

    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0

    def write(
        self, *pairs: Pair, producer_id: int | None = None, codec: Codec = Codec.NONE
    ) -> "Written":
        is_transactional = producer_id is not None
        batch = encode_batch(
            [
                Record(self.end_offset + number, 1_000, key, value, ())
                for number, (key, value) in enumerate(pairs)
            ],
            leader_epoch=3,
            codec=codec,
            producer_id=-1 if producer_id is None else producer_id,
            producer_epoch=5 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
            is_control=False,
        )
        self.batches.append(bytes(batch))
        self.end_offset += len(pairs)
        return self

    def end(self, producer_id: int, *, is_commit: bool) -> "Written":
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        end = TransactionEnd(kind, 0)
        marker = encode_marker(end, producer_id=producer_id, producer_epoch=5, timestamp_ms=1_000)
        stamp(marker, self.end_offset, len(marker) - LOG_OVERHEAD_BYTES, 3)
        self.batches.append(bytes(marker))
        self.end_offset += 1
        return self

    def control(self, *pairs: Pair, producer_id: int, codec: Codec = Codec.NONE) -> "Written":
        """A control batch that need not be one that brokers write."""
        batch = encode_batch(
            [
                Record(self.end_offset + number, 1_000, key, value, ())
                for number, (key, value) in enumerate(pairs)
            ],
            leader_epoch=3,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=5,
            base_sequence=-1,
            is_transactional=True,
            is_control=True,
        )
        self.batches.append(bytes(batch))
        self.end_offset += len(pairs)
        return self

    def remaining(
        self,
        new: NewSuperseded,
        *,
        spared: Sequence[bytes] = (),
        slice_batches: int = 1,
        keys_max: int = KEYS_MAX,
    ) -> list[Remaining]:
        superseded = new(KINDS, KINDS_IN_TRANSACTIONS, HASH_KEY, keys_max)
        slices = [
            b"".join(self.batches[start : start + slice_batches])
            for start in range(0, len(self.batches), slice_batches)
        ]
        for data in slices:
            superseded.note(data, 0)
        for key in spared:
            superseded.spare(key)
        return [Remaining(*each) for data in slices for each in superseded.remaining(data, 0)[0]]

    def pairs(self, new: NewSuperseded) -> list[Pair]:
        """What remains, markers aside."""
        return [(each.key, each.value) for each in self.remaining(new) if each.key is not None]


@BOTH
def test_the_last_of_each_key_remains_in_the_order_of_the_log(new: NewSuperseded) -> None:
    """R1"""
    log = Written().write((A, b"1"), (B, b"1")).write((A, b"2"), (A, b"3")).write((B, b"2"))
    assert log.pairs(new) == [(A, b"3"), (B, b"2")]


@BOTH
def test_a_tombstone_remains_and_outdates_nothing(new: NewSuperseded) -> None:
    """R1: that there was something before it may be of consequence."""
    log = Written().write((A, b"1"), (A, b"2")).write((A, None)).write((B, b"1"))
    assert log.pairs(new) == [(A, b"2"), (A, None), (B, b"1")]


@BOTH
def test_records_of_other_kinds_all_remain(new: NewSuperseded) -> None:
    pairs: list[Pair] = [(OTHER_KIND, b"1"), (OTHER_KIND, b"2"), (b"\0", b"3"), (b"\0", b"4")]
    pairs += [(b"\1\0a", b"5"), (b"\1\0a", b"6"), (b"\xff\xff", b"7"), (b"\xff\xff", b"8")]
    assert Written().write(*pairs, (None, b"no key")).pairs(new) == pairs


@BOTH
def test_what_a_committed_transaction_says_outdates_by_its_place_in_the_log(
    new: NewSuperseded,
) -> None:
    """R2"""
    log = Written().write((A, b"1")).write((A, b"2"), producer_id=7)
    later = Written(list(log.batches), log.end_offset).write((A, b"3"))
    assert log.end(7, is_commit=True).pairs(new) == [(A, b"2")]
    assert later.end(7, is_commit=True).pairs(new) == [(A, b"3")]


@BOTH
def test_what_an_aborted_transaction_says_outdates_nothing(new: NewSuperseded) -> None:
    """R2"""
    log = Written().write((A, b"1")).write((A, b"2"), producer_id=7).end(7, is_commit=False)
    assert log.pairs(new) == [(A, b"1"), (A, b"2")]


@BOTH
def test_what_is_pending_remains_and_outdates_nothing(new: NewSuperseded) -> None:
    """R2: the transaction before it, of the same producer, has ended."""
    log = Written().write((B, b"1"), producer_id=7).end(7, is_commit=True)
    log.write((A, b"1")).write((A, b"2"), producer_id=7).write((A, b"3"))
    assert log.pairs(new) == [(B, b"1"), (A, b"2"), (A, b"3")]


@BOTH
def test_kinds_that_mean_nothing_in_transactions_outdate_nothing_there(new: NewSuperseded) -> None:
    """R2"""
    log = Written().write((PLAIN_ONLY, b"1")).write((PLAIN_ONLY, b"2"), producer_id=7)
    log.end(7, is_commit=True)
    assert log.pairs(new) == [(PLAIN_ONLY, b"1"), (PLAIN_ONLY, b"2")]


@BOTH
def test_a_marker_remains_if_something_of_its_transaction_does(new: NewSuperseded) -> None:
    """R3"""
    log = Written()
    for number in range(3):
        log.write((A, b"%d" % number), producer_id=7).end(7, is_commit=True)
    assert log.remaining(new) == [
        Remaining(A, b"2", (7, 5), False),
        Remaining(None, None, (7, 5), True),
    ]


@BOTH
def test_a_key_that_is_spared_keeps_all_its_records(new: NewSuperseded) -> None:
    log = Written().write((A, b"1"), (B, b"1"), (A, b"2"), (B, b"2"))
    remaining = log.remaining(new, spared=[A, b"\0\0never seen"])
    assert [each.value for each in remaining] == [b"1", b"2", b"2"]


@BOTH
def test_what_comes_before_the_first_offset_is_none_of_its_business(new: NewSuperseded) -> None:
    """A log may begin within a batch."""
    log = Written().write((A, b"1"), (B, b"1"), (A, b"2"))
    data = b"".join(log.batches)
    superseded = new(KINDS, KINDS_IN_TRANSACTIONS, HASH_KEY, KEYS_MAX)
    assert superseded.note(data, 1) == 3
    remaining, end_offset = superseded.remaining(data, 1)
    assert [(key, value) for key, value, _, _ in remaining] == [(B, b"1"), (A, b"2")]
    assert end_offset == 3


@BOTH
def test_a_batch_that_is_cut_off_is_left_for_the_next_read(new: NewSuperseded) -> None:
    first, second = Written().write((A, b"1")).write((A, b"2")).batches
    superseded = new(KINDS, KINDS_IN_TRANSACTIONS, HASH_KEY, KEYS_MAX)
    assert superseded.note(first + second[:-1], 0) == 1
    assert superseded.note(first[:-1], 0) == -1
    assert superseded.remaining(first[:-1], 0) == ([], -1)


@BOTH
def test_keys_that_were_made_to_collide_are_two(new: NewSuperseded) -> None:
    """R1: whoever may commit for a group of its own cannot outdate another group's commit."""
    keys = [commit_key(group) for group in (GROUP, OTHER_GROUP)]
    assert len({fingerprint_in_python(key) for key in keys}) == 1
    log = Written().write((keys[0], b"theirs")).write((keys[1], b"mine"))
    assert log.pairs(new) == [(keys[0], b"theirs"), (keys[1], b"mine")]


def commit_key(group: str) -> bytes:
    key, _ = encode_group_record(OffsetCommitRecord(group, TopicPartition("orders", 0), None))
    return key


@BOTH
@pytest.mark.parametrize(
    "marker",
    [
        (None, b"\0\0\0\0\0\5"),
        (b"\0\0\0", b"\0\0\0\0\0\5"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\2", b"of a later version"),
    ],
)
def test_a_control_record_that_says_nothing_ends_nothing(new: NewSuperseded, marker: Pair) -> None:
    """As everywhere: the log is read on, and what is behind it counts."""
    log = Written().write((A, b"1")).write((A, b"2"), producer_id=7).control(marker, producer_id=7)
    assert read_transaction_end(log.batches[-1]) is None
    log.write((B, b"1"))
    assert log.remaining(new) == [
        Remaining(A, b"1", None, False),
        Remaining(A, b"2", (7, 5), False),
        Remaining(B, b"1", None, False),
    ]


@BOTH
def test_a_control_batch_that_cannot_be_read_ends_nothing(new: NewSuperseded) -> None:
    log = Written().write((A, b"1"), producer_id=7).end(7, is_commit=True).write((B, b"1"))
    log.batches[1] = log.batches[1][:HEADER_SIZE_BYTES] + b"\xff" * (
        len(log.batches[1]) - HEADER_SIZE_BYTES
    )
    assert read_transaction_end(log.batches[1]) is None
    assert log.pairs(new) == [(A, b"1"), (B, b"1")]


@BOTH
def test_a_marker_may_be_compressed_or_have_company(new: NewSuperseded) -> None:
    """What counts is the first record, as everywhere."""
    commit: Pair = (b"\0\0\0\1", b"\0\0\0\0\0\5")
    abort: Pair = (b"\0\0\0\0", b"\0\0\0\0\0\5")
    for log in (
        Written().write((A, b"1"), producer_id=7).control(commit, producer_id=7, codec=Codec.LZ4),
        Written().write((A, b"1"), producer_id=7).control(commit, abort, producer_id=7),
    ):
        assert log.remaining(new)[-1] == Remaining(None, None, (7, 5), True)


@BOTH
def test_what_there_is_no_room_to_note_remains(new: NewSuperseded) -> None:
    log = Written().write((A, b"1"), (B, b"1"), (A, b"2"), (B, b"2"))
    assert [each.value for each in log.remaining(new, keys_max=1)] == [b"1", b"2", b"2"]
    assert [each.value for each in log.remaining(new, keys_max=0)] == [b"1", b"1", b"2", b"2"]


@BOTH
def test_what_is_pending_takes_room_until_it_is_decided(new: NewSuperseded) -> None:
    log = Written().write((A, b"1"), producer_id=7).write((B, b"1"), (B, b"2"))
    log.end(7, is_commit=False).write((PLAIN_ONLY, b"1"), (PLAIN_ONLY, b"2"))
    kept = [each.value for each in log.remaining(new, keys_max=1) if each.key is not None]
    assert kept == [b"1", b"1", b"2", b"2"]


@BOTH
def test_more_keys_than_there_was_room_for(new: NewSuperseded) -> None:
    log = Written()
    for value in (b"old", b"new"):
        for first in range(0, 6_000, 1_000):
            log.write(*((b"\0\0%d" % number, value) for number in range(first, first + 1_000)))
    pairs = log.pairs(new)
    assert len(pairs) == 6_000
    assert {value for _, value in pairs} == {b"new"}


_pairs = st.tuples(
    st.sampled_from([A, B, PLAIN_ONLY, OTHER_KIND, b"", None]),
    st.sampled_from([None, b"", b"1", b"2" * 40]),
)
_writes = st.builds(
    lambda pairs, producer_id, codec: (
        lambda log: log.write(*pairs, producer_id=producer_id, codec=codec)
    ),
    st.lists(_pairs, min_size=1, max_size=4),
    st.sampled_from([None, None, 7, 8]),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
)
_ends = st.builds(
    lambda producer_id, is_commit: lambda log: log.end(producer_id, is_commit=is_commit),
    st.sampled_from([7, 8]),
    st.booleans(),
)
_logs = st.lists(st.one_of(_writes, _writes, _ends), max_size=12)


@pytest.mark.skipif(compiled is None, reason="there is nothing to compare with")
@given(
    steps=_logs,
    spared=st.lists(st.sampled_from([A, B]), max_size=1),
    slice_batches=st.integers(1, 4),
    keys_max=st.sampled_from([KEYS_MAX, 0, 1, 2, 3]),
)
def test_compiled_or_not_the_same_remains(
    steps: list[Callable[[Written], Written]],
    spared: list[bytes],
    slice_batches: int,
    keys_max: int,
) -> None:
    log = Written()
    for step in steps:
        step(log)
    in_python, in_c = (
        log.remaining(new, spared=spared, slice_batches=slice_batches, keys_max=keys_max)
        for new in (SupersededInPython, new_superseded)
    )
    assert in_python == in_c


@pytest.mark.skipif(compiled is None, reason="there is nothing to compare with")
@given(steps=_logs, damage=st.data())
def test_compiled_or_not_what_is_damaged_is_refused(
    steps: list[Callable[[Written], Written]], damage: st.DataObject
) -> None:
    log = Written().write((A, b"1"), (B, b"2"))
    for step in steps:
        step(log)
    data = bytearray(b"".join(log.batches))
    for _ in range(damage.draw(st.integers(1, 3))):
        data[damage.draw(st.integers(0, len(data) - 1))] = damage.draw(st.integers(0, 255))
    assert _outcome(SupersededInPython, bytes(data)) == _outcome(new_superseded, bytes(data))


def _outcome(new: NewSuperseded, data: bytes) -> object:
    superseded = new(KINDS, KINDS_IN_TRANSACTIONS, HASH_KEY, KEYS_MAX)
    try:
        noted = superseded.note(data, 0)
    except CorruptBatch:
        noted = None
    try:
        return noted, superseded.remaining(data, 0)
    except CorruptBatch:
        return noted, None
