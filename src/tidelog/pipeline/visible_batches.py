"""Which batches of a partition a reader may see, and what is in them.

Whoever reads a log as bytes gets all of it: marks of the broker's own, records of transactions that
were aborted, empty batches that compaction has left. Here they are left out, as every consumer
leaves them out.

    batches as bytes ──▶ whole? checksum? ──▶ control? aborted? ──▶ (header, batch) ──▶ decompressed
                            │ no: UnreadableBatch    │ yes: left out

Which transactions were aborted comes with the batches, for all of them: Fetch and `.txnindex` name
every transaction that has records among the batches asked for, wherever it began. So nothing need
be remembered from one piece to the next, and each can be read without those before it.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn, Protocol

from tidelog.base.errors import CorruptBatch
from tidelog.base.ids import NO_OFFSET
from tidelog.base.ports import BytesLike
from tidelog.records.batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    checksum_matches,
    read_header,
)
from tidelog.records.control import ControlType, read_transaction_end
from tidelog.records.record import uncompressed_payload

_BASE_OFFSET: Final = struct.Struct(">q")
_OF_A_TRANSACTION: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG


class AbortedTransaction(Protocol):
    """Records of this producer from this offset on, up to its abort marker, are not to be seen."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class UnreadableBatch(CorruptBatch):
    """Something that should be a batch is none, or not what was written."""

    def __init__(self, problem: str, *, position: int, offset: int) -> None:
        super().__init__(f"the batch at offset {offset} cannot be read: {problem}")
        self.problem = problem
        self.position = position
        """Where it starts among the bytes that were given."""
        self.offset = offset
        """Its base offset; if not even that can be read, where the batch before it ends."""


class VisibleBatches:
    """What a reader sees at one isolation level."""

    def __init__(self, *, is_committed_only: bool) -> None:
        self._is_committed_only = is_committed_only

    def of(
        self, records: BytesLike, aborted: Iterable[AbortedTransaction]
    ) -> Iterator[tuple[BatchHeader, BytesLike]]:
        """Header and uncompressed payload of each batch in `records` that may be seen.

        `records` are whole batches, in order, and `aborted` all transactions that have records
        among them. Each checksum is verified, also of what is left out. Raises UnreadableBatch,
        also for the marker of an aborted transaction whose records were taken for committed.
        """
        for position, header, batch in self.compressed(records, aborted):
            yield header, payload_of(position, header, batch)

    def compressed(
        self, records: BytesLike, aborted: Iterable[AbortedTransaction]
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """The same before they are decompressed: position, header and the whole batch.

        For readers who can tell by the header that they do not want it; `payload_of` for those
        who do.
        """
        transactions = _AbortedTransactions(aborted) if self._is_committed_only else None
        for position, header, batch in _intact_batches(memoryview(records)):
            if header.attributes & _OF_A_TRANSACTION:
                if transactions is not None and transactions.hide(position, header, batch):
                    continue
                if header.is_control:
                    continue
            if header.record_count:
                yield position, header, batch


def payload_of(position: int, header: BatchHeader, batch: memoryview) -> BytesLike:
    """The records of a batch as bytes, within UNCOMPRESSED_BYTES_MAX. Raises UnreadableBatch."""
    try:
        return uncompressed_payload(header, batch)
    except CorruptBatch as error:
        raise UnreadableBatch(str(error), position=position, offset=header.base_offset) from error


class _AbortedTransactions:
    """Which producers are in an aborted transaction, from batch to batch."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # The next to begin stands last.
        self._to_come = sorted(
            ((one.first_offset, one.producer_id) for one in aborted), reverse=True
        )
        self._producers: set[int] = set()
        self._shown: set[int] = set()

    def hide(self, position: int, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a batch with a producer belongs to one; its marker ends it."""
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._producers.add(self._to_come.pop()[1])
        if header.producer_id in self._producers:
            if header.is_control and _is_abort(batch):
                self._producers.remove(header.producer_id)
            return header.is_transactional
        if header.is_control:
            self._refuse_unnamed(position, header, batch)
        elif header.is_transactional and header.record_count:
            self._shown.add(header.producer_id)
        return False

    def _refuse_unnamed(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        # A segment that lost its `.txnindex` looks like one without aborted transactions.
        if header.producer_id in self._shown and _is_abort(batch):
            problem = f"it aborts a transaction of producer {header.producer_id} that is not listed"
            raise UnreadableBatch(problem, position=position, offset=header.base_offset)
        self._shown.discard(header.producer_id)


def _is_abort(batch: memoryview) -> bool:
    end = read_transaction_end(batch)
    return end is not None and end.control_type is ControlType.ABORT


def _intact_batches(records: memoryview) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    position = 0
    next_offset = None
    while position < len(records):
        try:
            header = read_header(records, position)
        except CorruptBatch as error:
            _refuse_header(records, position, next_offset, error)
        next_offset = header.base_offset
        end = position + header.size_bytes
        if end > len(records):
            left_bytes = len(records) - position
            problem = f"it has {header.size_bytes} bytes, {left_bytes} are left"
            raise UnreadableBatch(problem, position=position, offset=next_offset)
        if not checksum_matches(records, position, header.size_bytes):
            problem = "its checksum does not match"
            raise UnreadableBatch(problem, position=position, offset=next_offset)
        yield position, header, records[position:end]
        next_offset = header.end_offset
        position = end


def _refuse_header(
    records: memoryview, position: int, next_offset: int | None, error: CorruptBatch
) -> NoReturn:
    if next_offset is None:
        is_there = len(records) >= _BASE_OFFSET.size
        next_offset = _BASE_OFFSET.unpack_from(records)[0] if is_there else NO_OFFSET
    raise UnreadableBatch(str(error), position=position, offset=next_offset) from error
