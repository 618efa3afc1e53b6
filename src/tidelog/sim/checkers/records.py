"""P5-P8: what the outside was told is what the cluster holds in the end.

P5  nothing that was acknowledged with acks=all is lost, while one member of the isr was whole
P6  what a consumer was given is never undone, and it was given every offset in order
P7  an idempotent producer's records are there once, in the order in which it sent them
P8  all replicas are equal, byte by byte
"""

from collections.abc import Sequence

from tidelog.base.ids import Offset
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.records.batch import iter_headers
from tidelog.records.record import decode_records
from tidelog.sim.batches import ACKS_ALL
from tidelog.sim.observation import Cluster, Sight

_READ_BYTES = 2**20


class RecordsChecker:
    """Looks once, when everything has come to rest."""

    def __init__(self, cluster: Cluster, *, idempotent_producers: Sequence[str]) -> None:
        self._cluster = cluster
        self._idempotent = frozenset(idempotent_producers)

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Nothing is at rest yet."""

    def at_end(self) -> None:
        logs = [self._equal_log(number) for number in range(self._cluster.partition_count)]
        self._nothing_acknowledged_is_lost(logs)
        self._nothing_consumed_is_undone(logs)
        self._consumed_in_order(logs)
        for partition, log in enumerate(logs):
            self._sent_once_in_order(partition, log)

    def _equal_log(self, partition: int) -> dict[int, bytes]:
        """P8."""
        contents = {
            broker_id: contents_of(runner)
            for broker_id, broker in self._cluster.brokers.items()
            if (runner := broker.runner(self._cluster.topic, partition)) is not None
        }
        first_id, first = next(iter(contents.items()))
        for broker_id, content in contents.items():
            if content != first:
                raise self._cluster.fail(
                    "replicas are equal",
                    f"partition {partition}: broker {first_id} has {len(first)} bytes, broker "
                    f"{broker_id} {len(content)}, and they differ",
                )
        return _values(first)

    def _nothing_acknowledged_is_lost(self, logs: Sequence[dict[int, bytes]]) -> None:
        for one in self._cluster.ledger.acknowledged:
            if one.acks != ACKS_ALL or self._cluster.is_excused(one.partition):
                continue
            found = logs[one.partition].get(one.offset)
            if found != one.value:
                raise self._cluster.fail(
                    "nothing acknowledged is lost",
                    f"{one.value!r} was acknowledged at {one.at_s:.3f} s at partition "
                    f"{one.partition} offset {one.offset}, where there is {found!r}",
                )

    def _nothing_consumed_is_undone(self, logs: Sequence[dict[int, bytes]]) -> None:
        for one in self._cluster.ledger.consumed:
            if self._cluster.is_excused(one.partition):
                continue
            found = logs[one.partition].get(one.offset)
            if found != one.value:
                raise self._cluster.fail(
                    "what was read is never undone",
                    f"{one.consumer} read {one.value!r} at {one.at_s:.3f} s at partition "
                    f"{one.partition} offset {one.offset}, where there is {found!r}",
                )

    def _consumed_in_order(self, logs: Sequence[dict[int, bytes]]) -> None:
        """Every record; what was dropped as a duplicate has left a gap."""
        next_offsets: dict[tuple[str, int], int] = {}
        for one in self._cluster.ledger.consumed:
            expected = next_offsets.get((one.consumer, one.partition), 0)
            is_gap = all(
                offset not in logs[one.partition] for offset in range(expected, one.offset)
            )
            if one.offset < expected or not is_gap:
                raise self._cluster.fail(
                    "offsets are dense",
                    f"{one.consumer} was given offset {one.offset} of partition {one.partition} "
                    f"where {expected} was next",
                )
            next_offsets[one.consumer, one.partition] = one.offset + 1

    def _sent_once_in_order(self, partition: int, log: dict[int, bytes]) -> None:
        if self._cluster.is_excused(partition):
            return
        last: dict[str, int] = {}
        for offset, value in log.items():
            producer, _, number = value.decode().partition(":")
            if producer not in self._idempotent:
                continue
            if int(number) <= last.get(producer, -1):
                raise self._cluster.fail(
                    "an idempotent producer's records are there once, in order",
                    f"partition {partition} offset {offset} has {value!r} after number "
                    f"{last[producer]}",
                )
            last[producer] = int(number)


def contents_of(runner: PartitionRunner) -> bytes:
    """All bytes of a log."""
    log = runner.log
    parts = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(
            offset, end_offset=log.log_end_offset, max_bytes=_READ_BYTES, at_least_one=True
        )
        parts.append(bytes(read.data))
        offset = Offset(read.end_offset)
    return b"".join(parts)


def _values(contents: bytes) -> dict[int, bytes]:
    values = {}
    for position, header in iter_headers(contents):
        batch = contents[position : position + header.size_bytes]
        for record in decode_records(batch):
            values[record.offset] = record.value or b""
    return values
