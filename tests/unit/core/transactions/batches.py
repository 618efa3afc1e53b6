"""Headers of batches as producers and coordinators write them, for tests of producer states."""

from tidelog.base.ids import Offset
from tidelog.core.transactions.producers import EndedTransaction, ProducerStates
from tidelog.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from tidelog.records.control import ControlType, TransactionEnd

EXPIRATION_MS = 1_000
PRODUCER = 7
OTHER = 8


def states(producers_max: int = 100) -> ProducerStates:
    return ProducerStates(producer_id_expiration_ms=EXPIRATION_MS, producers_max=producers_max)


def header(
    sequence: int,
    *,
    count: int = 1,
    producer: int = PRODUCER,
    epoch: int = 0,
    offset: int = 0,
    timestamp_ms: int = 0,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=49,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def transactional(
    sequence: int, *, producer: int = PRODUCER, epoch: int = 0, offset: int = 0, count: int = 1
) -> BatchHeader:
    return header(
        sequence,
        count=count,
        producer=producer,
        epoch=epoch,
        offset=offset,
        attributes=TRANSACTIONAL_FLAG,
    )


def marker(*, offset: int, producer: int = PRODUCER, epoch: int = 0, at_ms: int = 0) -> BatchHeader:
    return header(
        -1,
        producer=producer,
        epoch=epoch,
        offset=offset,
        timestamp_ms=at_ms,
        attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG,
    )


def write(producers: ProducerStates, batch: BatchHeader, offset: int) -> None:
    """Append a transactional batch for which the coordinator has vouched."""
    guard = producers.begin_verification(
        batch.producer_id,
        batch.producer_epoch,
        sequence=batch.base_sequence,
        bumps_epoch=False,
        now_ms=0,
    )
    assert producers.on_transactional_batch(batch, guard) is None
    producers.on_appended(batch, base_offset=Offset(offset), timestamp_ms=batch.max_timestamp_ms)


def end(
    producers: ProducerStates,
    offset: int,
    *,
    producer: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    commit: bool = False,
) -> EndedTransaction | None:
    """Append a marker as a coordinator sends it."""
    batch = marker(offset=offset, producer=producer, epoch=epoch)
    producers.on_marker(
        batch.producer_id,  # type: ignore[arg-type]
        batch.producer_epoch,  # type: ignore[arg-type]
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    return producers.on_marker_appended(
        batch,
        TransactionEnd(control_type, coordinator_epoch),
        offset=Offset(offset),
        timestamp_ms=0,
    )
