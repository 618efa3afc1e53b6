"""What a power cut leaves of a log: its last batch torn, or a byte of it that never got there (B3).

Only to be done to brokers that are down, and only what was not flushed is touched: what lies below
the recovery point is on the disk, and no power cut changes that. Recovery has to find the damage
and to cut the log there (S6); what was in it is on the other replicas. A broker whose process was
killed while its machine ran on has all it had, and may lead on; so it has to be told, as a machine
tells it that has started again, that this one did not (R13).
"""

import random
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import iter_headers
from tidelog.storage.checkpoints import read_offsets
from tidelog.storage.disk import RealDisk
from tidelog.storage.layout import (
    BOOT_ID,
    LOG,
    RECOVERY_POINT_CHECKPOINT,
    parse_partition_folder,
)

# What comes before its checksum in a batch - offset, length, epoch, magic - is not covered by it.
_UNCHECKED_BYTES: Final = 17
_ANOTHER_BOOT: Final = "before the power cut"


class UnflushedBatch(NamedTuple):
    """The last batch of a log, of which a power cut may take all or a part."""

    file: Path
    position: int
    size_bytes: int


def tear_logs(log_dir: Path, topics: Collection[str] | None, chance: random.Random) -> int:
    """Cut the last batch of the topics' logs somewhere in the middle; of how many it was done.

    None: of all topics.
    """
    torn = 0
    for batch in _unflushed(log_dir, topics):
        rest_bytes = chance.randint(1, batch.size_bytes - 1)
        with batch.file.open("r+b") as log:
            log.truncate(batch.position + rest_bytes)
        torn += 1
    _forget_boot(log_dir)
    return torn


def change_bytes(log_dir: Path, topics: Collection[str] | None, chance: random.Random) -> int:
    """Change one byte in the last batch of the topics' logs; of how many it was done.

    None: of all topics.
    """
    changed = 0
    for batch in _unflushed(log_dir, topics):
        place = batch.position + chance.randrange(_UNCHECKED_BYTES, batch.size_bytes)
        with batch.file.open("r+b") as log:
            log.seek(place)
            (before,) = log.read(1)
            log.seek(place)
            log.write(bytes([before ^ (1 << chance.randrange(8))]))
        changed += 1
    _forget_boot(log_dir)
    return changed


def _forget_boot(log_dir: Path) -> None:
    """Let it look as if the machine had started again since; Kafka keeps no such file."""
    boot_id = log_dir / BOOT_ID
    if boot_id.exists():
        boot_id.write_text(_ANOTHER_BOOT, "ascii")


def _unflushed(log_dir: Path, topics: Collection[str] | None) -> Iterator[UnflushedBatch]:
    recovery_points = read_offsets(RealDisk(), log_dir / RECOVERY_POINT_CHECKPOINT) or {}
    for folder in sorted(log_dir.iterdir()):
        partition = parse_partition_folder(folder.name)
        if partition is None or (topics is not None and partition.topic not in topics):
            continue
        batch = _last_batch(folder, recovery_points.get(partition, 0))
        if batch is not None:
            yield batch


def _last_batch(folder: Path, recovery_point: int) -> UnflushedBatch | None:
    files = sorted(folder.glob(f"*{LOG}"))
    if not files:
        return None
    found: UnflushedBatch | None = None
    try:
        for position, header in iter_headers(files[-1].read_bytes()):
            if header.base_offset >= recovery_point:
                found = UnflushedBatch(files[-1], position, header.size_bytes)
    except CorruptBatch:
        return None  # Torn already: it was killed within a write.
    return found
