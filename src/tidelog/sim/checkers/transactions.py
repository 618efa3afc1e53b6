"""P19-P23: transactions happen whole or not at all, and all of them end.

P19  a reader of what is committed sees all records of a transaction or none
P20  one that was said to be committed is seen; one that was said to be aborted, or that nobody
     has asked to commit yet, is not
P21  none hangs: in the end all of a partition is stable, as far as it is committed
P22  the offsets that it commits go with its records, and never go back
P23  a producer's records are read once, in the order of its transactions
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tidelog.base.ids import Offset
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.control import ControlType, decode_transaction_end
from tidelog.records.record import decode_records
from tidelog.sim.observation import Cluster, Sight
from tidelog.sim.transaction_ledger import Outcome, Transaction, TransactionLedger
from tidelog.sim.transaction_reader import CommittedReader

NOT_COMMITTED = "what nobody has asked to commit is not committed"
READ_MAX_BYTES = 2**20

Name = tuple[str, int]
"""A transactional id and the number of a transaction."""


class TransactionsChecker:
    """Looks at what is committed, and at what was read of it when everything has come to rest."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: TransactionLedger,
        readers: Sequence[CommittedReader],
        *,
        groups: Mapping[str, str],
    ) -> None:
        """`groups`: the one whose offsets each transactional id commits."""
        self._cluster = cluster
        self._ledger = ledger
        self._readers = readers
        self._groups = groups
        self._rounds_at_rest: list[int] | None = None
        self._looked_at = [0] * cluster.partition_count
        """Up to where each partition."""
        self._undecided: dict[tuple[int, int], set[Name]] = {}
        """Transactions that a producer has written of to a partition, and not ended there."""

    # -- while it runs ---------------------------------------------------------------------------

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """P20. In the end it could not be told: whoever asks to commit later makes up for it."""
        start = max(self._looked_at[sight.partition], runner.log.log_start_offset)
        if sight.high_watermark <= start:
            return
        read = runner.log.read(
            Offset(start),
            end_offset=Offset(sight.high_watermark),
            max_bytes=READ_MAX_BYTES,
            at_least_one=True,
        )
        contents = bytes(read.data)
        for position, header in iter_headers(contents):
            self._looked_at[sight.partition] = header.end_offset
            if header.is_transactional:
                self._look_at(
                    sight.partition, header, contents[position : position + header.size_bytes]
                )

    def _look_at(self, partition: int, header: BatchHeader, batch: bytes) -> None:
        place = (partition, header.producer_id)
        records = decode_records(batch)
        if not header.is_control:
            values = [(record.value or b"").decode().split(":") for record in records]
            named = {(parts[0], int(parts[1])) for parts in values if parts[0] in self._groups}
            self._undecided.setdefault(place, set()).update(named)
            return
        (record,) = records
        end = decode_transaction_end(record.key, record.value)
        decided = self._undecided.pop(place, set())
        if end is not None and end.control_type is ControlType.COMMIT:
            for name in sorted(decided):
                self._require_asked(self._ledger.find(*name))

    def _require_asked(self, transaction: Transaction) -> None:
        if transaction.outcome is Outcome.OPEN:
            raise self._cluster.fail(
                NOT_COMMITTED,
                f"{transaction.transactional_id} number {transaction.number} is, and "
                f"{transaction.outcome.value}",
            )

    # -- coming to rest --------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether all is stable, and readers have read it, and then offsets."""
        ends = self._cluster.stable_ends()
        if ends is None or any(reader.offsets != ends for reader in self._readers):
            self._rounds_at_rest = None
            return False
        rounds = [reader.round_count for reader in self._readers]
        if self._rounds_at_rest is None:
            self._rounds_at_rest = rounds
        return all(now > then + 1 for now, then in zip(rounds, self._rounds_at_rest, strict=True))

    @property
    def unrest(self) -> str:
        """What is missing: P21, if it is a transaction."""
        reads = [reader.offsets for reader in self._readers]
        leaders = {
            partition: None
            if led is None
            else (led.last_stable_offset, led.high_watermark, led.announced_end_offset)
            for partition in range(self._cluster.partition_count)
            for led in [self._cluster.led(partition)]
        }
        return f"stable, committed, end by partition are {leaders}, readers are at {reads}"

    # -- at the end ------------------------------------------------------------------------------

    def at_end(self) -> None:
        transactions = {
            (one.transactional_id, one.number): one for one in self._ledger.transactions
        }
        for reader in self._readers:
            seen = self._seen(reader)
            for name, transaction in transactions.items():
                self._whole_or_not_at_all(transaction, seen.get(name, []))
            self._once_in_order(reader)
            self._offsets_go_with_records(reader, transactions, seen)

    def _seen(self, reader: CommittedReader) -> dict[Name, list[tuple[int, bytes]]]:
        """What a reader was given of each transaction."""
        seen: dict[Name, list[tuple[int, bytes]]] = {}
        for read in reader.records:
            parts = read.value.decode().split(":")
            if parts[0] in self._groups:
                seen.setdefault((parts[0], int(parts[1])), []).append((read.partition, read.value))
        return seen

    def _whole_or_not_at_all(
        self, transaction: Transaction, seen: Sequence[tuple[int, bytes]]
    ) -> None:
        """P19, P20."""
        outcome = transaction.outcome
        if outcome in {Outcome.ABORTED, Outcome.OPEN} and seen:
            raise self._cluster.fail(
                "what is aborted is not read",
                f"{list(seen)} of {transaction.transactional_id} number {transaction.number}: "
                f"{outcome.value}",
            )
        if outcome is Outcome.COMMITTED and transaction.written and not seen:
            raise self._cluster.fail(
                "what is committed is read",
                f"nothing of {transaction.transactional_id} number {transaction.number}",
            )
        if seen and sorted(seen) != sorted(transaction.written):
            raise self._cluster.fail(
                "a transaction is read whole or not at all",
                f"of {transaction.transactional_id} number {transaction.number} {sorted(seen)} "
                f"were read and {sorted(transaction.written)} were written",
            )

    def _once_in_order(self, reader: CommittedReader) -> None:
        """P23."""
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for read in reader.records:
            parts = read.value.decode().split(":")
            if parts[0] not in self._groups:
                continue
            place = (int(parts[1]), int(parts[3]))
            before = last.get((parts[0], read.partition), (-1, -1))
            if place <= before:
                raise self._cluster.fail(
                    "a transactional producer's records are read once, in order",
                    f"partition {read.partition} offset {read.offset} has {read.value!r} after "
                    f"{before}",
                )
            last[parts[0], read.partition] = place

    def _offsets_go_with_records(
        self,
        reader: CommittedReader,
        transactions: Mapping[Name, Transaction],
        seen: Mapping[Name, object],
    ) -> None:
        """P22."""
        for transactional_id, group in self._groups.items():
            told = reader.committed[group]
            for earlier, later in pairwise(told):
                if later < earlier:
                    raise self._cluster.fail(
                        "an offset of a transaction never goes back",
                        f"{group} had {earlier}, then {later}",
                    )
            expected = max(
                (
                    number
                    for (name, number), one in transactions.items()
                    if name == transactional_id and one.has_offset and (name, number) in seen
                ),
                default=-1,
            )
            final = told[-1] if told else -1
            if final != expected:
                raise self._cluster.fail(
                    "offsets of a transaction go with its records",
                    f"{group} has {final}, of those transactions whose records were read "
                    f"{expected} was the last",
                )
