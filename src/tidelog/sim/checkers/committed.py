"""P3: what is committed stays, and is the same on every replica below its high watermark.

The first replica whose high watermark passes a batch says what is committed there. Every other one,
and the same one in another life, must hold the same bytes when its own passes the place.
"""

from typing import NamedTuple

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.records.batch import BatchHeader
from tidelog.sim.observation import Cluster, Sight, headers


class Committed(NamedTuple):
    """A batch that must never change again, and who committed it."""

    leader_epoch: int
    last_offset: int
    crc: int
    by: str


class CommittedChecker:
    """Keeps every committed batch by its first offset."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.batches: list[dict[int, Committed]] = [{} for _ in range(cluster.partition_count)]
        self.end_offsets = cluster.committed_ends
        self._compared: dict[tuple[int, int, int], int] = {}

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        key = (sight.broker_id, sight.life, sight.partition)
        start = self._compared.get(key, 0)
        if sight.log_end_offset < start:
            start = self._compared[key] = sight.log_end_offset  # Truncated; compare again.
        if self._cluster.is_excused(sight.partition):
            return
        for header in headers(runner, start, sight.high_watermark):
            self._compare(sight, header)
            self._compared[key] = header.end_offset

    def _compare(self, sight: Sight, header: BatchHeader) -> None:
        batches = self.batches[sight.partition]
        who = f"broker {sight.broker_id} in epoch {sight.leader_epoch}"
        found = Committed(header.leader_epoch, header.last_offset, header.crc, who)
        if header.base_offset >= self.end_offsets[sight.partition]:
            batches[header.base_offset] = found
            self.end_offsets[sight.partition] = header.end_offset
            return
        known = batches.get(header.base_offset)
        if known is None or known[:3] != found[:3]:
            raise self._cluster.fail(
                "what is committed never changes",
                f"partition {sight.partition} offset {header.base_offset}: {who} has epoch "
                f"{header.leader_epoch} crc {header.crc:#x} up to {header.last_offset}, "
                f"committed was {known}",
            )

    def at_end(self) -> None:
        """All that was ever committed is there."""
        for partition, end_offset in enumerate(self.end_offsets):
            if self._cluster.is_excused(partition):
                continue
            for broker in self._cluster.brokers.values():
                runner = broker.runner(self._cluster.topic, partition)
                if runner is not None and runner.log.log_end_offset < end_offset:
                    raise self._cluster.fail(
                        "what is committed stays",
                        f"partition {partition}: committed up to {end_offset}, the log of broker "
                        f"{broker.broker_id} ends at {runner.log.log_end_offset}",
                    )
