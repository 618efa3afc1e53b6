"""Which log directory a replica gets that is new on this broker.

The one in which a folder of it was left, or was asked for (KIP-113), or which has the fewest. With
a folder in each of two directories a broker would not start again (I7 of `replicas.py`).
"""

from collections.abc import Mapping, Sequence

from tidelog.base.errors import StorageError
from tidelog.base.ids import TopicPartition
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.replica_logs import WantedReplica, left_in


async def where_left(
    log_dirs: Sequence[LogDirRunner], wanted: Sequence[WantedReplica]
) -> dict[TopicPartition, LogDirRunner]:
    """Directories that have a folder of what is new here, and was here before."""
    found: dict[TopicPartition, LogDirRunner] = {}
    if len(log_dirs) == 1:
        return found
    for log_dir in log_dirs:
        if log_dir.log_dir is None or not log_dir.is_online:
            continue
        try:
            left = await log_dir.executor.urgent(left_in, log_dir.log_dir, wanted)
        except StorageError as error:
            log_dir.on_failure(error)
            continue
        found |= dict.fromkeys(left, log_dir)
    return found


def share_out(
    online: Sequence[LogDirRunner],
    wanted: Sequence[WantedReplica],
    places: Mapping[TopicPartition, LogDirRunner],
) -> dict[LogDirRunner, list[WantedReplica]]:
    """Each new partition to the directory that it has in `places`, or that with the fewest."""
    shares: dict[LogDirRunner, list[WantedReplica]] = {log_dir: [] for log_dir in online}
    for one in wanted:
        log_dir = places.get(one.topic_partition)
        if log_dir is None or log_dir not in shares:
            log_dir = min(online, key=lambda known: len(known.runners) + len(shares[known]))
        shares[log_dir].append(one)
    return shares
