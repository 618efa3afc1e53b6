"""Produce (0): the hot path, one callback from the frame to the file and back.

Each partition of a request is settled on its own: appended, recognised as a repetition, refused
with a code of its own, or parked. The answer leaves when all are settled, or when the request's
time-out has come (only acks=all waits on purpose). With acks=0 nobody waits for an answer; if
something was refused the connection is closed, because that is the only way to say so.

The first batch of a transaction in a partition waits for the transaction's coordinator
(`broker/produce_verification.py`). Its connection handles nothing else meanwhile, so that what
follows it does not overtake it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Clock
from tidelog.broker.after_read import AfterRead
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.append_terms import NO_GUARD, FromClient
from tidelog.broker.connection import Answer, Connection, RequestShortcut
from tidelog.broker.heavy_turns import SMALL_BYTES, HeavyTurns
from tidelog.broker.partitions import Partitions
from tidelog.broker.produce_results import refused_by, refused_partition
from tidelog.broker.produce_verification import (
    NOTHING_VOUCHED,
    ProduceVerification,
    Unverified,
    Vouched,
)
from tidelog.broker.request_tasks import AtTheCostOf, RequestTasks
from tidelog.broker.waiters import ParkedProduce
from tidelog.core.controller.names import INTERNAL_TOPICS
from tidelog.records.batch import CODEC_MASK, HEADER_SIZE_BYTES, TRANSACTIONAL_FLAG, Codec
from tidelog.wire.api import RequestHeader, decode_request_header
from tidelog.wire.produce import (
    PartitionProduceResult,
    ProduceRequest,
    decode_produce,
    encode_produce_response,
)
from tidelog.wire.produce_template import ProduceTemplate, template_of

_FIRST_WITH_ZSTD = 7
_ATTRIBUTES_LOW_BYTE = 22
ADMIN_CLIENT_ID = "__admin_client"
"""Kafka's own tools call themselves so, and may write where others may not."""

Results = list[PartitionProduceResult | None]
ProduceShortcut = Callable[
    [
        ProduceTemplate | None,
        Partitions,
        Clock,
        Connection,
        asyncio.AbstractEventLoop,
        AfterRead,
        HeavyTurns,
    ],
    RequestShortcut | None,
]


@dataclass(frozen=True, slots=True)
class ProduceHandler:
    """Appends what clients send."""

    partitions: Partitions
    clock: Clock
    loop: asyncio.AbstractEventLoop
    after_read: AfterRead
    turns: HeavyTurns
    shortcut: ProduceShortcut
    verification: ProduceVerification
    tasks: RequestTasks

    def answer_repeated(
        self, connection: Connection, frame: memoryview, template: ProduceTemplate
    ) -> Answer | Literal[False]:
        """Answer a request to the same topic in the same form as the last one; False if it is not.

        The same as `answer`, at half its cost. benchmarks/request_path.py
        """
        match = template.match(frame)
        if match is None:
            return False
        correlation_id, partition, records = match
        if len(records) < HEADER_SIZE_BYTES or records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG:
            return False
        topic = template.topic
        if template.topic_id is not None:
            topic = self.partitions.topic_name(template.topic_id)
        runner = None if topic is None else self.partitions.find(topic, partition)
        if runner is None:
            return False
        if len(records) < SMALL_BYTES:
            self.turns.note_small()
        settling = _Settling()
        result = runner.append(
            records, acks=template.acks, now_ms=self.clock.now_ms(), settle=settling.settle_first
        )
        if result is not None:
            answer = template.answer(correlation_id, result)
            if answer is not None:
                return answer
        header = decode_request_header(frame)
        request = decode_produce(frame, header.body_position, header.api_version)
        if result is None:
            return self._park(connection, request, header, [None], 1, settling, None)
        return self._encode(connection, request, header, [result])

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        request = decode_produce(frame, header.body_position, header.api_version)
        # Neither is for what is refused because of who sends it, or has to be asked about.
        is_plain = request.transactional_id is None and not self._is_internal(request)
        template = template_of(frame, header, request) if is_plain else None
        connection.produce_template = template
        connection.use_shortcut(
            self.shortcut(
                template,
                self.partitions,
                self.clock,
                connection,
                self.loop,
                self.after_read,
                self.turns,
            )
        )
        if request.acks not in (-1, 0, 1):
            return self._refuse_all(request, header, ErrorCode.INVALID_REQUIRED_ACKS)
        if request.transactional_id is not None:
            return self._answer_transactional(connection, request, header)
        return self._append_all(connection, request, header, NOTHING_VOUCHED, None)

    def _is_internal(self, request: ProduceRequest) -> bool:
        return any(
            (name if topic_id is None else self.partitions.topic_name(topic_id)) in INTERNAL_TOPICS
            for name, topic_id, _ in request.topics
        )

    def _answer_transactional(
        self, connection: Connection, request: ProduceRequest, header: RequestHeader
    ) -> Answer:
        verification = self.verification
        try:
            unverified = verification.begin(request, header.api_version)
        except RequestRefused as refusal:
            return self._refuse_all(request, header, refusal.code)
        if isinstance(unverified, Vouched):
            return self._append_all(connection, request, header, unverified, None)
        if not verification.memory.has_room_for(unverified.size_bytes):
            # A code that every producer tries again after.
            return self._refuse_all(request, header, ErrorCode.NOT_ENOUGH_REPLICAS)
        verification.memory.hold(unverified.size_bytes)
        work = partial(self._verify, connection, _copied(request), header, unverified)
        return self.tasks.answer(connection, header.api_key, work)

    async def _verify(
        self,
        connection: Connection,
        request: ProduceRequest,
        header: RequestHeader,
        unverified: Unverified,
        pending: PendingAnswer,
    ) -> None:
        try:
            vouched = await self.verification.ask(unverified, header.api_version)
            answer = self._append_all(connection, request, header, vouched, pending)
        finally:
            self.verification.memory.release(unverified.size_bytes)
        if answer is not pending and pending.is_wanted:
            assert not isinstance(answer, PendingAnswer)
            pending.complete([] if answer is None else [answer])

    def _append_all(
        self,
        connection: Connection,
        request: ProduceRequest,
        header: RequestHeader,
        vouched: Vouched,
        place: PendingAnswer | None,
    ) -> bytes | PendingAnswer | None:
        """`place`: where the answer goes, if it has one already."""
        results: Results = []
        settling = _Settling()
        missing = 0
        now_ms = self.clock.now_ms()
        for name, topic_id, partitions in request.topics:
            topic = name if topic_id is None else self.partitions.topic_name(topic_id)
            for partition, records in partitions:
                slot = len(results)
                result = self._append(
                    topic,
                    partition,
                    records,
                    request,
                    header,
                    vouched,
                    now_ms,
                    slot,
                    settling,
                )
                results.append(result)
                if result is None:
                    missing += 1
        if missing:
            return self._park(connection, request, header, results, missing, settling, place)
        return self._encode(connection, request, header, results)

    def _append(
        self,
        topic: str | None,
        partition: int,
        records: memoryview | None,
        request: ProduceRequest,
        header: RequestHeader,
        vouched: Vouched,
        now_ms: int,
        slot: int,
        settling: "_Settling",
    ) -> PartitionProduceResult | None:
        if topic is None:
            return refused_partition(partition, ErrorCode.UNKNOWN_TOPIC_ID, None)
        runner = self.partitions.find(topic, partition)
        if runner is None:
            return refused_partition(partition, self.partitions.absence(topic, partition), None)
        if records is None or len(records) < HEADER_SIZE_BYTES:
            return refused_partition(
                partition, ErrorCode.INVALID_RECORD, "there is no record batch"
            )
        attributes = records[_ATTRIBUTES_LOW_BYTE]
        refusal = _refusal(topic, partition, request, header, attributes, vouched)
        if refusal is not None:
            return refused_by(partition, refusal)
        if header.api_version < _FIRST_WITH_ZSTD and attributes & CODEC_MASK == Codec.ZSTD:
            return refused_partition(
                partition,
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"zstd needs Produce version {_FIRST_WITH_ZSTD}",
            )
        if len(records) < SMALL_BYTES:
            self.turns.note_small()
        return runner.append(
            records,
            acks=request.acks,
            now_ms=now_ms,
            settle=lambda result: settling.settle(slot, result),
            terms=_terms(topic, partition, vouched),
        )

    def _park(
        self,
        connection: Connection,
        request: ProduceRequest,
        header: RequestHeader,
        results: Results,
        missing: int,
        settling: "_Settling",
        place: PendingAnswer | None,
    ) -> PendingAnswer:
        pending = place or PendingAnswer(connection, exclusive=False)
        indexes = [partition for topic in request.topics for partition, _records in topic[2]]
        # The frame's bytes are gone when the answer is due; only names and numbers are kept.
        shape = request._replace(
            topics=[
                (name, topic_id, [(partition, None) for partition, _records in partitions])
                for name, topic_id, partitions in request.topics
            ]
        )

        def complete(settled: Sequence[PartitionProduceResult]) -> None:
            # Called in the middle of work for other clients, which goes on whatever happens here.
            with AtTheCostOf(connection, header.api_key):
                answer = self._encode(connection, shape, header, list(settled))
                if pending.is_wanted:
                    pending.complete([] if answer is None else [answer])

        waiting = ParkedProduce(
            results,
            missing=missing,
            complete=complete,
            expired=lambda slot: refused_partition(
                indexes[slot], ErrorCode.REQUEST_TIMED_OUT, None
            ),
        )
        pending.on_abandoned(waiting.abandon)
        if request.acks == -1:
            waiting.expire_after(self.loop, max(0, request.timeout_ms) / 1000)
        settling.start(waiting)
        return pending

    def _encode(
        self,
        connection: Connection,
        request: ProduceRequest,
        header: RequestHeader,
        results: Sequence[PartitionProduceResult | None],
    ) -> bytes | None:
        if request.acks == 0:
            self._close_if_refused(connection, results)
            return None
        answered = iter(results)
        return encode_produce_response(
            header.api_version,
            header.correlation_id,
            [
                (name, topic_id, [_settled(next(answered)) for _ in partitions])
                for name, topic_id, partitions in request.topics
            ],
            throttle_ms=0,
            node_endpoints=(),
        )

    def _close_if_refused(
        self, connection: Connection, results: Sequence[PartitionProduceResult | None]
    ) -> None:
        for result in results:
            if result is not None and result.error_code:
                connection.refuse(
                    f"acks=0 and partition {result.partition} refused with "
                    f"{ErrorCode(result.error_code).name}"
                )
                return

    def _refuse_all(self, request: ProduceRequest, header: RequestHeader, code: ErrorCode) -> bytes:
        return encode_produce_response(
            header.api_version,
            header.correlation_id,
            [
                (
                    name,
                    topic_id,
                    [refused_partition(partition, code, None) for partition, _ in partitions],
                )
                for name, topic_id, partitions in request.topics
            ],
            throttle_ms=0,
            node_endpoints=(),
        )


class _Settling:
    """Where late results go: to the parked request, or aside while that is still being made.

    A disk that fails in the middle of a request settles partitions that were just queued.
    """

    __slots__ = ("_early", "_parked")

    def __init__(self) -> None:
        self._parked: ParkedProduce[PartitionProduceResult] | None = None
        self._early: list[tuple[int, PartitionProduceResult]] | None = None

    def settle_first(self, result: PartitionProduceResult) -> None:
        self.settle(0, result)

    def settle(self, slot: int, result: PartitionProduceResult) -> None:
        if self._parked is None:
            self._early = [*(self._early or ()), (slot, result)]
        else:
            self._parked.settle(slot, result)

    def start(self, parked: ParkedProduce[PartitionProduceResult]) -> None:
        self._parked = parked
        for slot, result in self._early or ():
            parked.settle(slot, result)


def _copied(request: ProduceRequest) -> ProduceRequest:
    """The same without the frame, whose bytes are read over."""
    return request._replace(
        topics=[
            (
                name,
                topic_id,
                [
                    (partition, None if records is None else memoryview(bytearray(records)))
                    for partition, records in partitions
                ],
            )
            for name, topic_id, partitions in request.topics
        ]
    )


def _terms(topic: str, partition: int, vouched: Vouched) -> FromClient:
    if vouched is NOTHING_VOUCHED:
        return NO_GUARD
    return FromClient(vouched.guards.get(TopicPartition(topic, partition)))


def _refusal(
    topic: str,
    partition: int,
    request: ProduceRequest,
    header: RequestHeader,
    attributes: int,
    vouched: Vouched,
) -> RequestRefused | None:
    """What a batch is refused for before anybody looks into it."""
    if topic in INTERNAL_TOPICS and header.client_id != ADMIN_CLIENT_ID:
        return RequestRefused(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {topic}"
        )
    if attributes & TRANSACTIONAL_FLAG and request.transactional_id is None:
        return RequestRefused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the request has no transactional id"
        )
    if vouched is NOTHING_VOUCHED:
        return None
    return vouched.refusals.get(TopicPartition(topic, partition))


def _settled(result: PartitionProduceResult | None) -> PartitionProduceResult:
    assert result is not None
    return result


def no_produce_shortcut(
    _template: ProduceTemplate | None,
    _partitions: Partitions,
    _clock: Clock,
    _connection: Connection,
    _loop: asyncio.AbstractEventLoop,
    _after_read: AfterRead,
    _turns: HeavyTurns,
) -> RequestShortcut | None:
    """All through Python."""
    return None
