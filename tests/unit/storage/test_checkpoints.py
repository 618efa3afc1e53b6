"""Small files in Kafka's formats: golden bytes, round trips, damage (S7)."""

from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.storage.checkpoints import (
    CorruptCheckpoint,
    decode_uuid,
    encode_uuid,
    read_leader_epochs,
    read_offsets,
    read_topic_id,
    write_leader_epochs,
    write_offsets,
    write_topic_id,
)
from tidelog.storage.memory_disk import MemoryDisk

PATH = Path("/checkpoint")

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 1000)), st.integers(0, 2**63 - 1).map(Offset)
)


def disk_with(data: bytes) -> MemoryDisk:
    disk = MemoryDisk(total_bytes=2**20, now_ms=0)
    disk.replace_file(PATH, data)
    return disk


@given(OFFSETS)
def test_offsets_are_read_as_written(offsets: dict[TopicPartition, Offset]) -> None:
    disk = MemoryDisk(total_bytes=2**20, now_ms=0)
    write_offsets(disk, PATH, offsets)
    assert read_offsets(disk, PATH) == offsets


def test_offsets_have_kafkas_format(memory_disk: MemoryDisk) -> None:
    offsets = {TopicPartition("b", 1): Offset(7), TopicPartition("a", 10): Offset(2**40)}
    write_offsets(memory_disk, PATH, offsets)
    assert memory_disk.read_file(PATH) == b"0\n2\na 10 1099511627776\nb 1 7\n"


def test_absent_checkpoint_is_not_an_empty_one(memory_disk: MemoryDisk) -> None:
    assert read_offsets(memory_disk, PATH) is None
    assert read_leader_epochs(memory_disk, PATH) is None
    assert read_topic_id(memory_disk, PATH) is None


def test_file_that_kafka_has_just_created_is_empty() -> None:
    assert read_offsets(disk_with(b""), PATH) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"0",
        b"\x00" * 40,
        b"\xff\xfe",
        b"1\n0\n",
        b"0\n1\n",
        b"0\n0\na 0 1\n",
        b"0\nx\n",
        b"0\n-1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na x 1\n",
        b"0\n2\na 0 1\n\n",
    ],
)
def test_damaged_offsets_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="/checkpoint"):
        read_offsets(disk_with(data), PATH)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_checkpoint_or_refused(data: bytes) -> None:
    for reader in (read_offsets, read_leader_epochs, read_topic_id):
        with suppress(CorruptCheckpoint):
            reader(disk_with(data), PATH)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99)), max_size=9))
def test_leader_epochs_are_read_as_written(steps: list[tuple[int, int]]) -> None:
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    epoch, offset = 0, 0
    for epoch_step, offset_step in steps:
        epochs.append((LeaderEpoch(epoch), Offset(offset)))
        epoch, offset = epoch + epoch_step, offset + offset_step
    disk = MemoryDisk(total_bytes=2**20, now_ms=0)
    write_leader_epochs(disk, PATH, epochs)
    assert read_leader_epochs(disk, PATH) == epochs


def test_leader_epochs_have_kafkas_format(memory_disk: MemoryDisk) -> None:
    write_leader_epochs(
        memory_disk, PATH, [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(4), Offset(9))]
    )
    assert memory_disk.read_file(PATH) == b"0\n2\n0 0\n4 9\n"


@pytest.mark.parametrize("lines", [b"1 0\n0 5\n", b"0 5\n1 4\n", b"0 0\n0 5\n"])
def test_leader_epochs_out_of_order_are_refused(lines: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        read_leader_epochs(disk_with(b"0\n2\n" + lines), PATH)


def test_topic_id_has_kafkas_format(memory_disk: MemoryDisk) -> None:
    topic_id = TopicId(UUID("946599a8-f0d8-44fb-a37c-c0036bca614b"))
    write_topic_id(memory_disk, PATH, topic_id)
    assert memory_disk.read_file(PATH) == b"version: 0\ntopic_id: lGWZqPDYRPujfMADa8phSw"
    assert read_topic_id(memory_disk, PATH) == topic_id


@pytest.mark.parametrize(
    "data", [b"version: 0", b"topic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 1\ntopic_id: x", b"x"]
)
def test_damaged_topic_id_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="/checkpoint"):
        read_topic_id(disk_with(data), PATH)


@given(st.uuids())
def test_ids_are_read_as_printed(uuid: UUID) -> None:
    text = encode_uuid(uuid)
    assert len(text) == 22
    assert decode_uuid(text) == uuid


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "!" * 22, "AAAAAAAAAAA AAAAAAAAAA"])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of those that decoding raises
        decode_uuid(text)
