"""What one partition answers to a Produce that it refuses."""

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_OFFSET, NO_TIMESTAMP
from tidelog.records.validation import RecordsRefused
from tidelog.wire.produce import PartitionProduceResult


def refused_partition(
    partition: int, code: ErrorCode, message: str | None
) -> PartitionProduceResult:
    """The answer for records that were not stored, or not stored well enough."""
    return PartitionProduceResult(
        partition, code, NO_OFFSET, NO_TIMESTAMP, NO_OFFSET, (), message, None
    )


def refused_by(partition: int, refusal: RequestRefused) -> PartitionProduceResult:
    """The same, with the records that are to blame where those are known."""
    result = refused_partition(partition, refusal.code, refusal.message)
    if isinstance(refusal, RecordsRefused):
        return result._replace(record_errors=refusal.record_errors)
    return result
