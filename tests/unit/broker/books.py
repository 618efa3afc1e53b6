"""All that a broker remembers of its partitions, sessions and connections, to be compared with
another's."""

from tests.unit.broker.served import ServedWorld
from tests.unit.broker.world import World
from tidelog.broker.connection import Connection
from tidelog.broker.fetch_interest import FetchInterest
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.sessions import FetchSession, FetchTarget


def all_books(world: World) -> dict[tuple[str, int], object]:
    return {runner.topic_partition: books(runner) for runner in world.partitions}


def books(runner: PartitionRunner) -> dict[str, object]:
    """Everything that an append, a fetch or an answer changes."""
    log = runner.log
    follower = runner.follower
    return {
        "offline": runner.is_offline,
        "offsets": (log.log_start_offset, log.log_end_offset, runner.high_watermark),
        "leader": repr(runner.leader),
        "follower": follower
        and (
            repr(follower.machine),
            follower.position,
            follower.is_busy,
            follower.is_lagging,
            follower.is_stopped,
        ),
        "epochs": (runner.epochs.entries, runner.has_unwritten_epoch),
        "producers": runner.producers.entries(),
        "stable": runner.last_stable_offset,
        "flusher": [
            getattr(runner._flusher, name)
            for name in ("unflushed_records", "unflushed_since_ms", "is_holding")
        ],
        "segments": [
            (
                segment.base_offset,
                segment.known_size_bytes,
                segment.file and segment.file.read(0, segment.file.size_bytes),
                segment.indexer
                and (
                    segment.indexer.first_timestamp_ms,
                    segment.indexer.max_timestamp,
                    segment.indexer.unindexed_bytes,
                    bytes(segment.indexer.offset_index._tail),
                    bytes(segment.indexer.time_index._tail),
                ),
            )
            for segment in log.segments
        ],
        "writing": (log._written_bytes, log.writing_due_at, log.is_writing_due),
        "cuts": log.truncation_count,
        "places": [place and (place[0], place[1].base_offset, place[2]) for place in log._recent],
        "waiting": [offset for offset, _, _ in sorted(runner._waiters._heap)],
        "uncommitted": runner._uncommitted_bytes,
        "watched by": runner.watcher_count,
    }


def session_books(served: ServedWorld) -> dict[str, object]:
    """What is remembered of those who fetch."""
    cache = served.sessions
    return {
        "interests": {
            session_id: _interest_books(interest)
            for session_id, interest in served.fetch.interests.items()
        },
        "by use": list(cache._sessions),
        "evictable": (cache._evictable_by_all, cache._evictable_by_privileged),
        "partitions": cache.partition_count,
        "proposed": [(runner.topic_partition, said) for runner, said in served.world.proposed],
        "memory": (served.answer_memory.held_bytes, served.frame_memory.held_bytes),
    }


def _interest_books(interest: FetchInterest) -> dict[str, object]:
    session = interest.fetch
    assert isinstance(session, FetchSession)
    parked = interest.parked
    return {
        "epoch": session.epoch,
        "dirty": [_name(target) for target in session._dirty],
        "targets": {
            _name(target): (target.wanted, target.told, target.is_wanted)
            for target in session.targets()
        },
        "full": session.is_full,
        "heavy": interest.is_heavy,
        "used": (session.last_used_ms, session.standing),
        "watched": {
            _name(target): runner.topic_partition for target, runner in interest._watched.items()
        },
        "tried": interest.attempt is not None,
        "parked": parked and parked.available_bytes,
    }


def _name(target: FetchTarget) -> tuple[bytes | None, int]:
    return target.topic_id, target.wanted.partition


def connection_books(connection: Connection) -> dict[str, object]:
    """What a read or an answer changes."""
    kept = {name: getattr(connection, name) for name in Connection.__slots__}
    for name in ("_owner", "_transport", "produce_template"):
        del kept[name]
    kept["_own"] = kept["_own"] and bytes(kept["_own"][: connection._filled_bytes])
    kept["_answers"] = [
        (one.exclusive, one.gives_way, one.buffers and b"".join(one.buffers))
        for one in connection._answers
    ]
    kept["shortcut"] = connection.shortcut is None
    return kept
