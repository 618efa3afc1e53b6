"""FindRecords (127): where the records with an id are, for a topic that has ids (D6).

The `.ids` files beside the segments answer it; what has none yet is read and gets one. Everything
that is committed is looked at, not only what lies within the window.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.broker.handlers.inter_broker import InterBrokerHandler
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import RequestTasks
from tidelog.wire.find_records import (
    FindRecordsRequest,
    FindRecordsResponse,
    FoundInPartition,
    decode_find_records,
    encode_find_records_response,
)

PLACES_MAX: Final = 1_000
"""Of one id in one partition; the newest are left out."""


@dataclass(frozen=True, slots=True)
class RecordFinder:
    """One partition's failure is that partition's answer."""

    partitions: Partitions

    async def find(self, request: FindRecordsRequest) -> FindRecordsResponse:
        return FindRecordsResponse(
            [
                await self._find(request.topic, partition, request.record_id)
                for partition in request.partitions
            ]
        )

    async def _find(self, topic: str, partition: int, record_id: bytes) -> FoundInPartition:
        try:
            runner = self.partitions.led(topic, partition)
            if runner.deduplicator is None or not record_id:
                raise RequestRefused(ErrorCode.INVALID_REQUEST)
            found = await runner.deduplicator.find(record_id)
            committed = (place for place in found if place[0] < runner.high_watermark)
            return FoundInPartition(partition, ErrorCode.NONE, [*islice(committed, PLACES_MAX)])
        except RequestRefused as refusal:
            return FoundInPartition(partition, refusal.code, [])
        except StorageError:
            return FoundInPartition(partition, ErrorCode.KAFKA_STORAGE_ERROR, [])


def find_records_handler(
    partitions: Partitions, tasks: RequestTasks
) -> InterBrokerHandler[FindRecordsRequest, FindRecordsResponse]:
    """Answers aside: a log may have to be read."""
    finder = RecordFinder(partitions)
    return InterBrokerHandler(tasks, decode_find_records, finder.find, encode_find_records_response)
