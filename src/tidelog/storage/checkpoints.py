"""Small text files in Kafka's formats, replaced atomically (S7).

    replication-offset-checkpoint        0               version
    recovery-point-offset-checkpoint     2               how many lines follow
    log-start-offset-checkpoint          orders 0 1042   topic, partition, offset
                                         orders 1 977

    leader-epoch-checkpoint              the same with two numbers: epoch, first offset of it

    partition.metadata                   version: 0
                                         topic_id: lGWZqPDYRPujfMADa8phSw

Reading is strict: a file that says anything else is `CorruptCheckpoint`, which names it, and
whoever reads decides what it can do without. An empty file is what Kafka creates before it first
writes one.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from tidelog.base.errors import StorageError
from tidelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk

_VERSION = "0"


class CorruptCheckpoint(StorageError):
    """The file is not what its name says."""


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, Offset] | None:
    """Offsets by partition; None if the file is absent."""
    if not disk.exists(path):
        return None
    offsets = {}
    for line in _read_lines(disk, path):
        match line.split(" "):
            case [topic, partition, offset]:
                key = TopicPartition(topic, _natural(partition, path))
                offsets[key] = Offset(_natural(offset, path))
            case _:
                raise CorruptCheckpoint(f"{path}: {line!r} is not a topic, partition and offset")
    return offsets


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    lines = [f"{key.topic} {key.partition} {offset}" for key, offset in sorted(offsets.items())]
    _write_lines(disk, path, lines)


LeaderEpochs = tuple[tuple[LeaderEpoch, Offset], ...]


def read_leader_epochs(disk: Disk, path: Path) -> list[tuple[LeaderEpoch, Offset]] | None:
    """Leader epochs and their first offsets, both growing; None if the file is absent."""
    if not disk.exists(path):
        return None
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    for line in _read_lines(disk, path):
        match line.split(" "):
            case [epoch, start_offset]:
                entry = (
                    LeaderEpoch(_natural(epoch, path)),
                    Offset(_natural(start_offset, path)),
                )
            case _:
                raise CorruptCheckpoint(f"{path}: {line!r} is not an epoch and an offset")
        if epochs and not (epochs[-1][0] < entry[0] and epochs[-1][1] <= entry[1]):
            raise CorruptCheckpoint(f"{path}: {line!r} does not come after the line before it")
        epochs.append(entry)
    return epochs


def write_leader_epochs(
    disk: Disk, path: Path, epochs: Sequence[tuple[LeaderEpoch, Offset]]
) -> None:
    _write_lines(disk, path, [f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def _read_lines(disk: Disk, path: Path) -> list[str]:
    data = disk.read_file(path)
    if not data:
        return []
    try:
        version, count, *lines = data.decode("utf-8").split("\n")
    except ValueError as error:
        raise CorruptCheckpoint(f"{path} is not a checkpoint") from error
    if version != _VERSION:
        raise CorruptCheckpoint(f"{path} has version {version!r}, expected {_VERSION}")
    if lines and lines[-1] == "":
        lines.pop()
    if _natural(count, path) != len(lines):
        raise CorruptCheckpoint(f"{path} has {len(lines)} lines, its header says {count}")
    return lines


def _natural(text: str, path: Path) -> int:
    if not text.isascii() or not text.isdigit():
        raise CorruptCheckpoint(f"{path}: {text!r} is not a number")
    return int(text)


def _write_lines(disk: Disk, path: Path, lines: list[str]) -> None:
    text = "\n".join([_VERSION, str(len(lines)), *lines])
    disk.replace_file(path, f"{text}\n".encode())


def encode_uuid(uuid: UUID) -> str:
    """As Kafka prints ids: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """Raises ValueError for anything that `encode_uuid` does not print."""
    try:
        uuid = UUID(bytes=base64.b64decode(text.encode() + b"==", altchars=b"-_", validate=True))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not an id") from error
    return uuid


def read_topic_id(disk: Disk, path: Path) -> TopicId | None:
    """The topic id in `partition.metadata`; None if the file is absent or a crash left it empty."""
    if not disk.exists(path):
        return None
    data = disk.read_file(path)
    if not data:
        return None
    try:
        fields = dict(line.split(": ") for line in data.decode("utf-8").split("\n") if line)
        if fields["version"] != _VERSION:
            raise CorruptCheckpoint(
                f"{path} has version {fields['version']!r}, expected {_VERSION}"
            )
        return TopicId(decode_uuid(fields["topic_id"]))
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"{path} does not state a topic id") from error


def write_topic_id(disk: Disk, path: Path, topic_id: TopicId) -> None:
    """Not flushed: it is durable with the first flush of its log.

    A thousand new partitions would be two thousand flushes, and what a crash takes here is known
    to the coordinator as well.
    """
    file = disk.open(path)
    try:
        file.truncate(0)
        file.append(f"version: {_VERSION}\ntopic_id: {encode_uuid(topic_id)}".encode())
    finally:
        file.close()
