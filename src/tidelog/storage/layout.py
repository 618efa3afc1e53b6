"""Names of files and folders, both directions (S1, S2).

    <log dir>/<topic>-<n>/00000000000000000042.log          batches from offset 42 on
                          00000000000000000042.index        offset to position
                          00000000000000000042.timeindex    time to offset
                          00000000000000000042.txnindex     aborted transactions, if there are any
                          00000000000000000042.ids          ids of its records, if it has some
                          00000000000000000042.snapshot     producers as of offset 42
                          leader-epoch-checkpoint  partition.metadata

A folder that is being deleted is `<topic>-<n>.<32 hexadecimal digits>-delete`, one that was found
in the place of another topic's, or that nobody asks for, ends in `-stray`, and one that a replica
of another log dir is being copied to in `-future`. A `tidelog-moved` in a partition's folder says
that such a copy has taken its place.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from tidelog.base.ids import Offset, TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
IDS = ".ids"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, IDS)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
MOVED = "tidelog-moved"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = ".tidelog_boot"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"

# A KRaft controller's own log, which lies among the topics where Kafka wrote the dir.
CLUSTER_METADATA = "__cluster_metadata-0"

_OFFSET_DIGITS = 20
_DELETE = "-delete"
_STRAY = "-stray"
_FUTURE = "-future"
_UNIQUE_DIGITS = 32
_NAME_BYTES_MAX = 255


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def is_named_by_offset(name: str) -> bool:
    """Whether it is a segment's file, or was one, or is to become one."""
    stem = name[:_OFFSET_DIGITS]
    return len(stem) == _OFFSET_DIGITS and stem.isdigit() and stem.isascii()


@dataclass(slots=True)
class FolderContents:
    """What lies in a partition's folder, sorted by kind."""

    bases: dict[str, list[Offset]]
    leftovers: list[str] = field(default_factory=list)
    others: set[str] = field(default_factory=set)

    def offsets(self, suffix: str) -> list[Offset]:
        """Base offsets of the files with `suffix`, ascending."""
        return self.bases[suffix]


def sort_folder(names: Iterable[str]) -> FolderContents:
    """Tell segment files from what an interrupted deletion left behind.

    `names` must be sorted: offsets come out in the same order.
    """
    bases: dict[str, list[Offset]] = {suffix: [] for suffix in _OFFSET_NAMED}
    contents = FolderContents(bases)
    for name in names:
        suffix = name[_OFFSET_DIGITS:]
        of_suffix = bases.get(suffix)
        if of_suffix is not None and is_named_by_offset(name):
            of_suffix.append(Offset(int(name[:_OFFSET_DIGITS])))
        elif name.endswith((DELETED, CLEANED, TEMPORARY)):
            contents.leftovers.append(name)
        else:
            contents.others.add(name)
    return contents


_OFFSET_NAMED = frozenset((*SEGMENT_SUFFIXES, SNAPSHOT))


def parse_partition_folder(name: str) -> TopicPartition | None:
    """The partition whose folder is called `name`; None if it is not such a name."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    number = int(partition)
    return TopicPartition(topic, number) if str(number) == partition else None


def delete_folder_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """Where the folder goes once its deletion is decided.

    Longer than a file name may be, the topic's name is cut: nobody parses it any more.
    """
    return _renamed(topic_partition, unique, _DELETE)


def stray_folder_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """Where the folder goes when it is in the way of another topic, or nobody's."""
    return _renamed(topic_partition, unique, _STRAY)


def future_folder_name(topic_partition: TopicPartition, unique: UUID) -> str | None:
    """Where a replica is copied to. None if that is longer than a file name may be: the copy has
    to be found again after a restart, so its topic's name is not cut."""
    name = f"{topic_partition}.{unique.hex}{_FUTURE}"
    return name if len(name) <= _NAME_BYTES_MAX else None


def parse_future_folder(name: str) -> TopicPartition | None:
    """The partition of which a folder called `name` is to hold a copy; None if it is not one."""
    if not name.endswith(_FUTURE):
        return None
    folder, dot, unique = name.removesuffix(_FUTURE).rpartition(".")
    return parse_partition_folder(folder) if dot and len(unique) == _UNIQUE_DIGITS else None


def _renamed(topic_partition: TopicPartition, unique: UUID, ending: str) -> str:
    suffix = f"-{topic_partition.partition}.{unique.hex}{ending}"
    return topic_partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix


def is_delete_folder(name: str) -> bool:
    return name.endswith(_DELETE) and "." in name
