"""A partition's folder with keys, transactions and producers in it, compacted step by step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.hash_keys import HASH_KEY
from tests.unit.storage.log_folder import NOW_MS, append_batch, read_all
from tidelog.base.ids import NO_SEQUENCE, Offset, ProducerEpoch, ProducerId
from tidelog.records.batch import BatchHeader, Codec, read_header
from tidelog.records.control import ControlType, TransactionEnd, encode_transaction_end
from tidelog.records.producer import ProducedBatch, ProducerEntry
from tidelog.records.record import Record, encode_batch
from tidelog.storage.cleanable import Cleanable, measure
from tidelog.storage.compaction import Compaction, CompactionLimits, Replace
from tidelog.storage.log import Log
from tidelog.storage.transaction_index import AbortedTransaction

Keyed = tuple[bytes | None, bytes | None]

AMPLE = CompactionLimits(memory_bytes=1_000_000, load_factor=0.9, read_bytes=4_096)


def keyed_batch(
    base_offset: int,
    pairs: Sequence[Keyed],
    *,
    timestamp_ms: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """Records with keys and values, a millisecond apart."""
    records = [
        Record(base_offset + number, timestamp_ms + number, key, value, ())
        for number, (key, value) in enumerate(pairs)
    ]
    return encode_batch(
        records,
        leader_epoch=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=False,
    )


def marker(
    base_offset: int, producer_id: int, *, is_abort: bool, producer_epoch: int = 0
) -> bytearray:
    """The end of a transaction."""
    kind = ControlType.ABORT if is_abort else ControlType.COMMIT
    key, value = encode_transaction_end(TransactionEnd(kind, 0))
    return encode_batch(
        [Record(base_offset, NOW_MS, key, value, ())],
        leader_epoch=0,
        codec=Codec.NONE,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        is_transactional=True,
        is_control=True,
    )


@dataclass
class Transactions:
    """Appends to a log as producers with transactions do, and knows what is open."""

    log: Log
    open: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    last_batches: dict[int, BatchHeader] = field(default_factory=dict)

    def write(
        self,
        producer_id: int,
        pairs: Sequence[Keyed],
        *,
        is_transactional: bool = True,
        codec: Codec = Codec.NONE,
    ) -> int:
        """Append a batch of one producer, in its transaction; its base offset."""
        base_offset = self.log.log_end_offset
        sequence = self.sequences.get(producer_id, 0)
        batch = keyed_batch(
            base_offset,
            pairs,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        append_batch(self.log, batch, producers=self.entries())
        self.sequences[producer_id] = sequence + len(pairs)
        self.last_batches[producer_id] = read_header(batch, 0)
        if is_transactional:
            self.open.setdefault(producer_id, base_offset)
        return base_offset

    def end(self, producer_id: int, *, is_abort: bool) -> int:
        """Append the marker; its offset."""
        offset = self.log.log_end_offset
        ending = marker(offset, producer_id, is_abort=is_abort)
        append_batch(self.log, ending, producers=self.entries())
        first_offset = self.open.pop(producer_id, None)
        if is_abort and first_offset is not None:
            stable = min(self.open.values(), default=offset + 1)
            self.log.append_aborted(
                AbortedTransaction(
                    ProducerId(producer_id), Offset(first_offset), offset, Offset(stable)
                )
            )
        return offset

    @property
    def last_stable_offset(self) -> Offset:
        return Offset(min(self.open.values(), default=self.log.log_end_offset))

    def entries(self) -> list[ProducerEntry]:
        return [
            living_producer(header, transaction_first_offset=self.open.get(producer_id))
            for producer_id, header in self.last_batches.items()
        ]


def living_producer(
    header: BatchHeader, *, transaction_first_offset: int | None = None
) -> ProducerEntry:
    """What a partition knows of a producer whose last batch has `header`."""
    return ProducerEntry(
        producer_id=ProducerId(header.producer_id),
        producer_epoch=ProducerEpoch(header.producer_epoch),
        coordinator_epoch=-1,
        last_timestamp_ms=header.max_timestamp_ms,
        current_txn_first_offset=(
            None if transaction_first_offset is None else Offset(transaction_first_offset)
        ),
        batches=(
            ProducedBatch(
                header.base_sequence,
                header.last_sequence,
                Offset(header.base_offset),
                Offset(header.last_offset),
                header.max_timestamp_ms,
            ),
        ),
    )


def append_pairs(log: Log, *batches: Sequence[Keyed], codec: Codec = Codec.NONE) -> None:
    """A batch for each, and a new segment behind it."""
    for pairs in batches:
        append_batch(log, keyed_batch(log.log_end_offset, pairs, codec=codec))
        log.roll(producers=(), now_ms=NOW_MS)


def cleanable_of(
    log: Log,
    *,
    cleaned_offset: int | None = None,
    last_stable_offset: int | None = None,
    now_ms: int = NOW_MS,
) -> Cleanable:
    stable = log.log_end_offset if last_stable_offset is None else Offset(last_stable_offset)
    return measure(
        log,
        cleaned_offset=None if cleaned_offset is None else Offset(cleaned_offset),
        last_stable_offset=stable,
        now_ms=now_ms,
    )


def compact(
    log: Log,
    *,
    cleaned_offset: int | None = None,
    last_stable_offset: int | None = None,
    producers: Iterable[ProducerEntry] = (),
    limits: CompactionLimits = AMPLE,
    now_ms: int = NOW_MS,
) -> Compaction:
    """Do it all, one step after the other."""
    compaction = Compaction(
        log,
        cleanable_of(
            log,
            cleaned_offset=cleaned_offset,
            last_stable_offset=last_stable_offset,
            now_ms=now_ms,
        ),
        producers=list(producers),
        limits=limits,
        hash_key=HASH_KEY,
        now_ms=now_ms,
    )
    for step in compaction.steps():
        if isinstance(step, Replace):
            log.begin_replacing()
            renamed = log.replace(step.cleaned, truncation_count=compaction.truncation_count)
            assert renamed is not None
            for path in renamed:
                log.disk.remove(path)
    return compaction


def headers(log: Log) -> list[BatchHeader]:
    return list(log.headers_from(log.segments[0].base_offset))


def committed(log: Log, *, end_offset: int | None = None) -> list[Record]:
    """What a consumer at read_committed gets up to `end_offset`."""
    end = log.log_end_offset if end_offset is None else Offset(end_offset)
    aborted = log.aborted_transactions(log.log_start_offset, end_offset=end)
    control, owner = set(), {}
    for header in headers(log):
        for offset in range(header.base_offset, header.last_offset + 1):
            if header.is_control:
                control.add(offset)
            if header.is_transactional:
                owner[offset] = header.producer_id
    return [
        record
        for record in read_all(log)
        if record.offset < end
        and record.offset not in control
        and not any(
            owner.get(record.offset) == one.producer_id
            and one.first_offset <= record.offset <= one.last_offset
            for one in aborted
        )
    ]


def newest(records: Iterable[Record]) -> dict[bytes, bytes]:
    """The value of every key at the end; a tombstone takes it away."""
    values: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values
