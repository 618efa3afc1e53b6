"""What a coordinator's shard is loaded from, as it is read on a thread: see `shard_runner.py`."""

from collections.abc import Callable, Collection, Set
from typing import NamedTuple

from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.core.coordinators import Transactional
from tidelog.records.superseded import Superseded, kind_of
from tidelog.storage.log import Log

NOTE_BYTES_MAX = 1024 * 1024
LOAD_BYTES_MAX = 256 * 1024
"""Noted, or read and decoded, at a time: the thread is needed for other things as well."""


class Ended(NamedTuple):
    """A marker that was found in the log."""

    producer: Transactional
    is_committed: bool


class Loaded(NamedTuple):
    """What was read: decoded records and markers, in the order of the log."""

    entries: list[tuple[object, Transactional | None] | Ended]
    end_offset: Offset
    unreadable: Set[bytes]
    """Keys of records of which the last counts, but cannot be decoded."""


def note_entries(
    log: Log, offset: Offset, *, end_offset: Offset, max_bytes: int, superseded: Superseded
) -> Loaded:
    """Take the next records of the log into account. There is nothing to replay yet."""
    max_bytes = min(max_bytes, NOTE_BYTES_MAX)
    read = log.read(offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True)
    noted = superseded.note(read.data, offset)
    return Loaded([], end_offset if noted < 0 else Offset(noted), frozenset())


def read_entries(
    log: Log,
    offset: Offset,
    *,
    end_offset: Offset,
    max_bytes: int,
    superseded: Superseded,
    decode: Callable[[bytes, bytes | None], object | None],
    kinds: Collection[int],
) -> Loaded:
    """The next records of the log that count, decoded."""
    max_bytes = min(max_bytes, LOAD_BYTES_MAX)
    read = log.read(offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True)
    remaining, next_offset = superseded.remaining(read.data, offset)
    entries: list[tuple[object, Transactional | None] | Ended] = []
    unreadable: set[bytes] = set()
    for key, value, producer, is_committed in remaining:
        transactional = None
        if producer is not None:
            transactional = Transactional(ProducerId(producer[0]), ProducerEpoch(producer[1]))
        if key is None:
            assert transactional is not None
            entries.append(Ended(transactional, is_committed))
            continue
        decoded = decode(key, value)
        if decoded is not None:
            entries.append((decoded, transactional))
        elif kind_of(key) in kinds:
            unreadable.add(key)
    return Loaded(entries, end_offset if next_offset < 0 else Offset(next_offset), unreadable)
