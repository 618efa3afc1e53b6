"""ListOffsets (2): which offset is the first, the last, or the one at a point in time.

The ends of a log are known and answered at once. A search by time reads index files, so it runs on
the log directory's thread. An offset that a consumer may not read yet is not told: a search that
ends at or beyond the high watermark (or the last stable offset) found nothing.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, Offset
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.fetch_reader import READ_COMMITTED
from tidelog.broker.large_requests import LARGE_BYTES, LargeRequests, in_turns
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import RequestTasks
from tidelog.storage.log import TimestampOffset
from tidelog.wire.api import RequestHeader
from tidelog.wire.list_offsets import (
    FIRST_VERSION_OF,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
    SpecialTimestamp,
    decode_list_offsets,
    encode_list_offsets_response,
)

_FIRST_WITH_OFFSET_NOT_AVAILABLE = 5

Repeated = set[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ListOffsetsHandler:
    """One partition's failure is that partition's error code."""

    partitions: Partitions
    tasks: RequestTasks
    large: LargeRequests

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        if len(frame) > LARGE_BYTES:
            work = partial(self._answer_large, bytes(frame), header)
            return self.tasks.answer(connection, header.api_key, work)
        request = decode_list_offsets(frame, header.body_position, header.api_version)
        repeated = _repeated(request)
        if any(_is_search(query) for _, queries in request.topics for query in queries):
            pending = PendingAnswer(connection, exclusive=False)
            self.tasks.start(
                connection,
                header.api_key,
                self._search_then_answer(pending, request, header, repeated),
            )
            return pending
        return self._encode(
            header,
            [
                (
                    topic,
                    [self._at_once(topic, query, request, header, repeated) for query in queries],
                )
                for topic, queries in request.topics
            ],
        )

    async def _answer_large(
        self, frame: bytes, header: RequestHeader, pending: PendingAnswer
    ) -> None:
        async with self.large.turn(len(frame)):
            if not pending.is_wanted:
                return
            request, repeated = await self.large.aside.run(
                partial(_decode_large, frame, header), count=len(frame)
            )
        # Not in our turn any more: searches may take long, and then wait for the disk.
        await self._search_then_answer(pending, request, header, repeated)

    async def _search_then_answer(
        self,
        pending: PendingAnswer,
        request: ListOffsetsRequest,
        header: RequestHeader,
        repeated: Repeated,
    ) -> None:
        topics = []
        async for topic, queries in in_turns(request.topics):
            results = []
            async for query in in_turns(queries):
                if not pending.is_wanted:
                    return
                if _is_search(query):
                    results.append(await self._search(topic, query, request, header, repeated))
                else:
                    results.append(self._at_once(topic, query, request, header, repeated))
            topics.append((topic, results))
        answer = await self.large.aside.run(
            partial(self._encode, header, topics),
            count=sum(len(results) for _topic, results in topics),
        )
        if pending.is_wanted:
            pending.complete([answer])

    def _at_once(
        self,
        topic: str,
        query: ListOffsetsPartition,
        request: ListOffsetsRequest,
        header: RequestHeader,
        repeated: Repeated,
    ) -> ListOffsetsResult:
        try:
            _require_answerable(topic, query, header, repeated)
            runner = self.partitions.led(topic, query.partition, query.current_leader_epoch)
            return _end_of_log(runner, query, request, header)
        except RequestRefused as refusal:
            return _refused(query, refusal.code)

    async def _search(
        self,
        topic: str,
        query: ListOffsetsPartition,
        request: ListOffsetsRequest,
        header: RequestHeader,
        repeated: Repeated,
    ) -> ListOffsetsResult:
        try:
            _require_answerable(topic, query, header, repeated)
            runner = self.partitions.led(topic, query.partition, query.current_leader_epoch)
            found = await _look_up(runner, query.timestamp_ms)
            readable_end = _readable_end(runner, request)  # Somebody else may lead by now.
        except RequestRefused as refusal:
            return _refused(query, refusal.code)
        if found is None or found.offset >= readable_end:
            return ListOffsetsResult(query.partition, 0, NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)
        return ListOffsetsResult(
            query.partition, 0, found.timestamp_ms, found.offset, found.leader_epoch
        )

    def _encode(
        self, header: RequestHeader, topics: list[tuple[str, list[ListOffsetsResult]]]
    ) -> bytes:
        return encode_list_offsets_response(
            header.api_version, header.correlation_id, topics, throttle_ms=0
        )


def _decode_large(frame: bytes, header: RequestHeader) -> tuple[ListOffsetsRequest, Repeated]:
    request = decode_list_offsets(memoryview(frame), header.body_position, header.api_version)
    return request, _repeated(request)


def _is_search(query: ListOffsetsPartition) -> bool:
    return query.timestamp_ms >= 0 or query.timestamp_ms == SpecialTimestamp.MAX_TIMESTAMP


def _repeated(request: ListOffsetsRequest) -> Repeated:
    """Partitions that are asked for more than once, which Kafka refuses."""
    asked = Counter(
        (topic, query.partition) for topic, queries in request.topics for query in queries
    )
    return {key for key, count in asked.items() if count > 1}


def _require_answerable(
    topic: str, query: ListOffsetsPartition, header: RequestHeader, repeated: Repeated
) -> None:
    if (topic, query.partition) in repeated:
        raise RequestRefused(ErrorCode.INVALID_REQUEST)
    if query.timestamp_ms < 0:
        first_version = FIRST_VERSION_OF.get(query.timestamp_ms)
        if first_version is None or header.api_version < first_version:
            raise RequestRefused(ErrorCode.UNSUPPORTED_VERSION)


async def _look_up(runner: PartitionRunner, timestamp_ms: int) -> TimestampOffset | None:
    directory = runner.log_directory
    try:
        if timestamp_ms == SpecialTimestamp.MAX_TIMESTAMP:
            return await directory.executor.urgent(runner.log.offset_of_max_timestamp)
        return await directory.executor.urgent(runner.log.offset_by_timestamp, timestamp_ms)
    except StorageError as error:
        raise runner.refuse_reader(error, directory) from error


def _readable_end(runner: PartitionRunner, request: ListOffsetsRequest) -> Offset:
    if request.replica_id >= 0:
        return runner.log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return runner.last_stable_offset
    return runner.high_watermark


def _end_of_log(
    runner: PartitionRunner,
    query: ListOffsetsPartition,
    request: ListOffsetsRequest,
    header: RequestHeader,
) -> ListOffsetsResult:
    match query.timestamp_ms:
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            offset = runner.log.log_start_offset
            epoch = runner.epochs.epoch_of(offset)
        case SpecialTimestamp.LATEST:
            offset = _readable_end(runner, request)
            epoch = runner.leader_epoch
            is_sure = runner.high_watermark >= runner.leading.epoch_start_offset
            if not is_sure and request.replica_id < 0:
                # A new leader does not know yet how much of the old epoch was committed.
                raise RequestRefused(
                    ErrorCode.OFFSET_NOT_AVAILABLE
                    if header.api_version >= _FIRST_WITH_OFFSET_NOT_AVAILABLE
                    else ErrorCode.LEADER_NOT_AVAILABLE
                )
        case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            offset, epoch = NO_OFFSET, NO_LEADER_EPOCH  # Nothing is tiered.
        case _:
            raise AssertionError(f"{query.timestamp_ms} is no end of a log")
    return ListOffsetsResult(query.partition, 0, NO_TIMESTAMP, offset, epoch)


def _refused(query: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsResult:
    return ListOffsetsResult(query.partition, code, NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)
