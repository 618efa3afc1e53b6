"""P24-P26: what was sent twice is stored once (D5). What a transaction had that was aborted is not
stored.

P24  no partition has two records with one id
P25  what a producer was told is stored is stored, by this batch or by an earlier one
P26  a producer that sent one record was told where the first copy is
"""

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.records.batch import iter_headers
from tidelog.records.control import ControlType, decode_transaction_end
from tidelog.records.record import Record, decode_records
from tidelog.sim.checkers.records import contents_of
from tidelog.sim.observation import Cluster, Sight
from tidelog.sim.repeater import RepeatedIds


class DuplicatesChecker:
    """Looks once, when everything has come to rest."""

    def __init__(
        self, cluster: Cluster, ids: RepeatedIds, *, topic: str, partition_count: int
    ) -> None:
        self._cluster = cluster
        self._ids = ids
        self._topic = topic
        self._partition_count = partition_count

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Nothing is at rest yet."""

    def at_end(self) -> None:
        stored = [self._offsets_by_id(partition) for partition in range(self._partition_count)]
        for told in self._ids.told:
            for one in told.ids:
                if one not in stored[told.partition]:
                    raise self._cluster.fail(
                        "an id that was acknowledged is stored",
                        f"{one!r} of partition {told.partition}, at {told.at_s:.3f} s",
                    )
            if len(told.ids) == 1 and stored[told.partition][told.ids[0]] != told.base_offset:
                raise self._cluster.fail(
                    "a duplicate is told where the first copy is",
                    f"{told.ids[0]!r} of partition {told.partition} was told "
                    f"{told.base_offset} at {told.at_s:.3f} s, and is at "
                    f"{stored[told.partition][told.ids[0]]}",
                )

    def _offsets_by_id(self, partition: int) -> dict[bytes, int]:
        """P24, of any replica: that all are equal is looked at elsewhere."""
        runner = next(
            found
            for broker in self._cluster.brokers.values()
            if (found := broker.runner(self._topic, partition)) is not None
        )
        offsets: dict[bytes, int] = {}
        for record in _stored(contents_of(runner)):
            if record.key is None:
                continue
            if record.key in offsets:
                raise self._cluster.fail(
                    "a record with an id is stored once",
                    f"{record.key!r} of partition {partition} is at offsets "
                    f"{offsets[record.key]} and {record.offset}",
                )
            offsets[record.key] = record.offset
        return offsets


def _stored(contents: bytes) -> list[Record]:
    """All records but those of transactions that were aborted."""
    stored: list[Record] = []
    undecided: dict[int, list[Record]] = {}
    for position, header in iter_headers(contents):
        records = decode_records(contents[position : position + header.size_bytes])
        if header.is_control:
            end = decode_transaction_end(records[0].key, records[0].value)
            held = undecided.pop(header.producer_id, [])
            if end is not None and end.control_type is ControlType.COMMIT:
                stored += held
        elif header.is_transactional:
            undecided.setdefault(header.producer_id, []).extend(records)
        else:
            stored += records
    assert not undecided, "all has come to rest"
    return stored
