"""Records of `__consumer_offsets`: as Kafka 4.3 wrote them, in every version, and damaged."""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import kafka_group_records
from tests.support.kio_codec import int32s, int64s, names
from tidelog.base.errors import WireError
from tidelog.base.ids import NO_TIMESTAMP, NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.records.groups import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
)
from tidelog.wire.group_records import (
    decode_any_group_record,
    decode_group_record,
    encode_group_record,
)
from tidelog.wire.primitives import compact_string

_partitions = st.builds(TopicPartition, names, int32s)
_offsets = st.builds(
    CommittedOffset,
    int64s,
    int32s,
    names,
    int64s,
    st.just(NO_TIMESTAMP),
    st.uuids().map(TopicId) | st.just(NO_TOPIC_ID),
)
_expiring_offsets = st.builds(
    CommittedOffset,
    int64s,
    st.just(-1),
    names,
    int64s,
    st.integers(0, 2**63 - 1),
    st.just(NO_TOPIC_ID),
)
_members = st.builds(
    MemberMetadata,
    names,
    st.none() | names,
    names,
    names,
    st.integers(0, 2**31 - 1),
    int32s,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
_groups = st.builds(
    GroupMetadata,
    names,
    int32s,
    st.none() | names,
    st.none() | names,
    int64s,
    st.lists(_members, max_size=3).map(tuple),
)
_records: st.SearchStrategy[GroupRecord] = st.builds(
    OffsetCommitRecord, names, _partitions, st.none() | _offsets | _expiring_offsets
) | st.builds(GroupMetadataRecord, names, st.none() | _groups)


def _golden() -> Iterator[tuple[GroupRecord, tuple[bytes, bytes | None]]]:
    for key, value in kafka_group_records():
        record = decode_group_record(key, value)
        assert record is not None
        yield record, (key, value)


def test_what_kafka_wrote_is_written_in_the_same_bytes() -> None:
    for record, recorded in _golden():
        assert encode_group_record(record) == recorded


def test_what_kafka_wrote_is_understood() -> None:
    created, stable, _, expiring, by_id, emptied, *tombstones = (one for one, _ in _golden())
    assert isinstance(created, GroupMetadataRecord)
    assert created.value is not None
    assert (created.value.protocol_type, created.value.generation) == ("", 0)
    assert isinstance(stable, GroupMetadataRecord)
    assert stable.value is not None
    (member,) = stable.value.members
    assert stable.value.leader == member.member_id
    assert member.member_id.startswith("instance-")
    assert (member.group_instance_id, member.client_id) == ("instance", "message-client")
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (60_000, 30_000)
    assert (member.client_host, member.assignment) == ("/127.0.0.1", b"assigned")
    assert isinstance(expiring, OffsetCommitRecord)
    assert expiring.value is not None
    assert expiring.value[:3] == (44, -1, "version 2 é")
    assert expiring.value.expire_timestamp_ms - expiring.value.commit_timestamp_ms == 3_600_000
    assert isinstance(by_id, OffsetCommitRecord)
    assert by_id.partition == TopicPartition("golden-offsets", 1)
    assert by_id.value is not None
    assert by_id.value[:3] == (52, 5, "version 10 é")
    assert by_id.value.topic_id != NO_TOPIC_ID
    assert isinstance(emptied, GroupMetadataRecord)
    assert emptied.value is not None
    assert (emptied.value.generation, emptied.value.members) == (2, ())
    assert [encode_group_record(record)[1] for record in tombstones] == [None, None, None]


@given(record=_records)
def test_a_record_comes_back_as_it_was(record: GroupRecord) -> None:
    assert decode_group_record(*encode_group_record(record)) == record


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    value = struct.pack(">hq", version, 7)
    value += struct.pack(">i", 3) if version >= 3 else b""
    value += compact_string("note") if version == 4 else b"\x00\x04note"
    value += struct.pack(">q", 1000)
    value += {1: struct.pack(">q", 2000), 4: b"\x00"}.get(version, b"")
    record = decode_group_record(b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x05", value)
    expected = CommittedOffset(
        7, 3 if version >= 3 else -1, "note", 1000, 2000 if version == 1 else -1
    )
    assert record == OffsetCommitRecord("g", TopicPartition("t", 5), expected)


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    is_flexible = version == 4

    def text(word: str) -> bytes:
        return compact_string(word) if is_flexible else struct.pack(">h", len(word)) + word.encode()

    def data(content: bytes) -> bytes:
        size = len(content)
        return (bytes([size + 1]) if is_flexible else struct.pack(">i", size)) + content

    end = b"\x00" if is_flexible else b""
    value = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 4)
    value += text("range") + text("m")
    value += struct.pack(">q", 1000) if version >= 2 else b""
    value += b"\x02" if is_flexible else struct.pack(">i", 1)
    value += text("m") + (text("i") if version >= 3 else b"") + text("c") + text("h")
    value += struct.pack(">i", 60) if version >= 1 else b""
    value += struct.pack(">i", 10) + data(b"sub") + data(b"ass") + end + end
    member = MemberMetadata(
        "m", "i" if version >= 3 else None, "c", "h", 60 if version else 10, 10, b"sub", b"ass"
    )
    timestamp_ms = 1000 if version >= 2 else -1
    expected = GroupMetadata("consumer", 4, "range", "m", timestamp_ms, (member,))
    assert decode_group_record(b"\x00\x02\x00\x01g", value) == GroupMetadataRecord("g", expected)


def test_a_kind_that_is_not_known_is_left_alone() -> None:
    assert decode_group_record(b"\x7f\x00anything", b"whatever") is None


@pytest.mark.parametrize("value", [b"", b"\x00\x05", b"\xff\xff", b"\x00\x04\x00", b"\x00\x03\x00"])
def test_a_damaged_value_is_refused(value: bytes) -> None:
    with pytest.raises(WireError):
        decode_group_record(b"\x00\x02\x00\x01g", value)
    with pytest.raises(WireError):
        decode_group_record(b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x05", value)


@given(record=_records, data=st.data())
def test_damaged_bytes_are_another_record_or_refused(
    record: GroupRecord, data: st.DataObject
) -> None:
    key, value = encode_group_record(record)
    key = key[: data.draw(st.integers(0, len(key)))]
    with suppress(WireError):
        decode_group_record(key, value)


def test_a_topic_id_is_kept() -> None:
    offset = CommittedOffset(1, 2, "", 3, NO_TIMESTAMP, TopicId(UUID(int=9)))
    record = OffsetCommitRecord("g", TopicPartition("t", 0), offset)
    _, value = encode_group_record(record)
    assert value is not None
    assert value.endswith(b"\x01\x00\x10" + UUID(int=9).bytes)


_usual = st.builds(OffsetCommitRecord, names, _partitions, _offsets).map(encode_group_record)
_damage = st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.integers(0, 255)), max_size=3)


@given(pair=_usual, damage=_damage, cut=st.integers(0, 3), more=st.binary(max_size=2))
def test_a_commit_is_read_the_quick_way_as_by_the_book(
    pair: tuple[bytes, bytes], damage: list[tuple[bool, int, int]], cut: int, more: bytes
) -> None:
    parts = [bytearray(part) for part in pair]
    for is_key, place, byte in damage:
        part = parts[is_key]
        part[place % len(part)] = byte
    key, value = bytes(parts[0]), bytes(parts[1][: len(parts[1]) - cut] + more)
    assert _outcome(decode_group_record, key, value) == _outcome(
        decode_any_group_record, key, value
    )


def _outcome(
    decode: Callable[[bytes, bytes], GroupRecord | None], key: bytes, value: bytes
) -> object:
    try:
        return decode(key, value)
    except WireError:
        return WireError
