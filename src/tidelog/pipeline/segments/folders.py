"""Find the folders of partitions, and what the checkpoints beside them say (S1, S7).

    /data/broker-1/logs/orders-3/00000000000000000000.log
          └──────────────────────── a folder with brokers' log dirs
                   └─────────────── a log dir: checkpoints, and folders of partitions
                        └────────── a partition

Any of these may be given, several of them, and patterns. A folder is a partition's if its name says
so and it holds segments: `broker-1` has such a name too. Or what is left of a partition: indexes of
segments that are gone, or a link to a folder that is. Left out unless it is named itself: topics of
the cluster's own (`__consumer_offsets`), and folders that are being deleted, copied to or were set
aside.
"""

import glob
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.storage import layout
from tidelog.storage.checkpoints import read_offsets, read_topic_id
from tidelog.storage.disk import RealDisk

PATH_OPTION: Final = "path"
FOLDERS_DEPTH_MAX: Final = 4
"""How deep below a path partitions are looked for."""

_INTERNAL: Final = "__"
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/*")
_SET_ASIDE: Final = re.compile(r"(.+)\.[0-9a-f]{32}-(?:delete|stray|future)")
_SET_ASIDE_ENDINGS: Final = ("-delete", "-stray", "-future")
_DISK: Final = RealDisk()


@dataclass(frozen=True, slots=True, order=True)
class PartitionFolder:
    """One replica of a partition."""

    partition: TopicPartition
    path: Path
    topic_id: TopicId | None
    log_start_offset: int
    """Below it, records were deleted. There may be none that far down."""
    high_watermark: int | None
    """Below it, records are committed; None if nobody has written that down."""
    cleaned_offset: int = 0
    """Below it, the log was compacted."""


def find_partitions(
    paths: Iterable[str], *, topics: Collection[str] | None
) -> list[PartitionFolder]:
    """Every replica of every partition in `paths`, in order of partitions and then of paths.

    `topics` None: all but internal ones. A string may hold several paths with commas between them.
    Raises OptionError for a path with nothing in it.
    """
    found: dict[Path, PartitionFolder] = {}
    checkpoints = _Checkpoints()
    for pattern in _patterns(paths):
        folders = [each for path in _matching(pattern) for each in _partitions_in(path, topics)]
        if Path(pattern).is_file():
            raise OptionError(f"{PATH_OPTION} {pattern} is a file: give the folder that it is in")
        if not folders and topics is None:
            raise OptionError(
                f"{PATH_OPTION} {pattern} has no partitions in it: a partition is a folder such as "
                "orders-3 that holds .log files"
            )
        for partition, folder in folders:
            key = folder.resolve()
            if key not in found:
                found[key] = checkpoints.folder(partition, folder)
    return sorted(found.values(), key=lambda folder: folder.partition)


def _patterns(paths: Iterable[str]) -> Iterator[str]:
    """A path or pattern at a time."""
    for text in paths:
        local = _local(text.strip())
        if not local.strip(", "):
            raise OptionError(f"{PATH_OPTION} is empty: give log dirs, or folders of partitions")
        # A folder may have a comma in its name.
        if Path(local).exists():
            yield local
        else:
            yield from (_local(part.strip()) for part in local.split(",") if part.strip())


def _matching(pattern: str) -> list[Path]:
    """What is there under this name; what `*` matches by chance was not asked for by name."""
    if Path(pattern).exists():
        return [Path(pattern)]
    name = Path(pattern).name
    matching = [Path(each) for each in sorted(glob.glob(pattern))]  # noqa: PTH207 - absolute ones
    if not matching:
        raise OptionError(f"{PATH_OPTION} {pattern} does not exist")
    return [
        path
        for path in matching
        if (name.startswith(_INTERNAL) or not path.name.startswith(_INTERNAL))
        and (name.endswith(_SET_ASIDE_ENDINGS) or not _SET_ASIDE.fullmatch(path.name))
    ]


def _local(text: str) -> str:
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme.group(1).lower() != "file":
        raise OptionError(
            f"{PATH_OPTION} {text} is not on a file system: segments are read from folders that "
            "every executor sees under the same path"
        )
    return "/" + text[scheme.end() :]


def _partitions_in(
    path: Path, topics: Collection[str] | None
) -> Iterator[tuple[TopicPartition, Path]]:
    absolute = path.absolute()
    named = _named(absolute)
    if named is not None and _is_partition(absolute):
        if topics is None or named.topic in topics:
            yield named, absolute
        return
    for partition, folder in _below(absolute, FOLDERS_DEPTH_MAX):
        is_internal = partition.topic.startswith(_INTERNAL)
        if not is_internal if topics is None else partition.topic in topics:
            yield partition, folder


def _named(folder: Path) -> TopicPartition | None:
    """Whose folder it is by its name, set aside or not."""
    set_aside = _SET_ASIDE.fullmatch(folder.name)
    return layout.parse_partition_folder(set_aside.group(1) if set_aside else folder.name)


def _below(folder: Path, depth: int) -> Iterator[tuple[TopicPartition, Path]]:
    if depth == 0 or not folder.is_dir():
        return
    for name in _DISK.list_folder(folder):
        below = folder / name
        if name.startswith(".") or _SET_ASIDE.fullmatch(name):
            continue
        partition = layout.parse_partition_folder(name)
        if partition is not None and _is_partition(below):
            # A replica that was moved to another log dir is read from there.
            if not (below / layout.MOVED).exists():
                yield partition, below
        else:
            yield from _below(below, depth - 1)


def holds_segments(folder: Path) -> bool:
    """Whether there is anything to read in what was found."""
    return _holds_any(folder, layout.LOG)


def _is_partition(folder: Path) -> bool:
    if folder.is_symlink() and not folder.exists():
        return True
    return _holds_any(folder, layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX)


def _holds_any(folder: Path, *suffixes: str) -> bool:
    if not folder.is_dir():
        return False
    contents = layout.sort_folder(_DISK.list_folder(folder))
    return any(contents.offsets(suffix) for suffix in suffixes)


class _Checkpoints:
    """What lies beside the folders of partitions, each file read once."""

    def __init__(self) -> None:
        self._offsets: dict[Path, dict[TopicPartition, Offset]] = {}

    def folder(self, partition: TopicPartition, path: Path) -> PartitionFolder:
        try:
            topic_id = read_topic_id(_DISK, path / layout.PARTITION_METADATA)
        except StorageError:
            topic_id = None  # Only compared where several say something.
        if _SET_ASIDE.fullmatch(path.name):
            # What the checkpoints say is about the folder that has its place.
            return PartitionFolder(partition, path, topic_id, 0, None)
        start_offset = self._of(partition, path.parent / layout.LOG_START_OFFSET_CHECKPOINT)
        high_watermark = self._of(partition, path.parent / layout.HIGH_WATERMARK_CHECKPOINT)
        cleaned_offset = self._of(partition, path.parent / layout.CLEANER_OFFSET_CHECKPOINT)
        return PartitionFolder(
            partition, path, topic_id, start_offset or 0, high_watermark, cleaned_offset or 0
        )

    def _of(self, partition: TopicPartition, path: Path) -> int | None:
        if path not in self._offsets:
            self._offsets[path] = read_offsets(_DISK, path) or {}
        return self._offsets[path].get(partition)
