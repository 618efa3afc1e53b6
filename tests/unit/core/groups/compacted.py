"""The log of a shard as compaction leaves it: what a later coordinator reads (S5)."""

from dataclasses import dataclass

from tests.unit.core.groups.hosted import Hosted
from tidelog.base.ids import ProducerId
from tidelog.core.groups.shard import GroupShard
from tidelog.records.groups import GroupRecord
from tidelog.wire.group_records import encode_group_record


@dataclass(frozen=True)
class Stored:
    """A record of the log, in a transaction of `producer_id` if there is one."""

    record: GroupRecord
    producer_id: ProducerId | None


@dataclass(frozen=True)
class Marker:
    producer_id: ProducerId
    is_commit: bool


Entry = Stored | Marker


def log_of(hosted: Hosted) -> list[Entry]:
    """What was written, in order."""
    entries: list[Entry] = []
    markers = list(hosted.markers)
    for position in range(len(hosted.written) + 1):
        while markers and markers[0][0] == position:
            _, producer_id, is_commit = markers.pop(0)
            entries.append(Marker(producer_id, is_commit))
        if position < len(hosted.written):
            record, owner = hosted.written[position]
            entries.append(Stored(record, None if owner is None else owner.producer_id))
    return entries


def compacted(log: list[Entry], *, share: float, drops_tombstones: bool) -> list[Entry]:
    """The same, with so much of it compacted, up to the first transaction that is open.

    Markers stay, what was aborted goes; of what is left, the last record of each key stays.
    """
    aborted, first_open = _undecided(log)
    end = min(first_open, int(len(log) * share))
    last = {
        _key(entry): number
        for number, entry in enumerate(log[:end])
        if isinstance(entry, Stored) and number not in aborted
    }
    return [
        entry
        for number, entry in enumerate(log)
        if number >= end
        or isinstance(entry, Marker)
        or (last.get(_key(entry)) == number and not (drops_tombstones and _is_tombstone(entry)))
    ]


def replayed(hosted: Hosted, log: list[Entry]) -> GroupShard:
    """A shard that has read `log`, and nothing else."""
    shard = hosted.new_shard()
    for entry in log:
        match entry:
            case Marker(producer_id, is_commit):
                shard.replay_marker(producer_id, is_commit=is_commit)
            case Stored(record, None):
                shard.replay(record)
            case Stored(record, producer_id):
                assert producer_id is not None
                shard.replay_transactional(record, producer_id)
    return shard


def _undecided(log: list[Entry]) -> tuple[set[int], int]:
    """Which records were aborted, and where the first transaction begins that has no marker."""
    aborted: set[int] = set()
    pending: dict[ProducerId, list[int]] = {}
    for number, entry in enumerate(log):
        match entry:
            case Marker(producer_id, is_commit):
                ended = pending.pop(producer_id, [])
                if not is_commit:
                    aborted.update(ended)
            case Stored(_, producer_id) if producer_id is not None:
                pending.setdefault(producer_id, []).append(number)
    return aborted, min((numbers[0] for numbers in pending.values()), default=len(log))


def _key(entry: Stored) -> bytes:
    return encode_group_record(entry.record)[0]


def _is_tombstone(entry: Stored) -> bool:
    return encode_group_record(entry.record)[1] is None
