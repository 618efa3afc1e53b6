"""WriteTxnMarkers (27): a coordinator ends transactions in the partitions that this broker leads.

Each marker is appended to each of its partitions with acks=all. The answer leaves when all of them
are committed or refused. One that is not when the time is up is not lost: the coordinator asks
again, and the same marker twice ends a transaction once.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.base.ports import Clock
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.append_queue import Settle
from tidelog.broker.append_terms import Marker
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import AtTheCostOf
from tidelog.broker.waiters import ParkedProduce
from tidelog.records.control import ControlType, TransactionEnd
from tidelog.wire.api import RequestHeader
from tidelog.wire.produce import PartitionProduceResult
from tidelog.wire.write_txn_markers import (
    MarkerResult,
    TransactionMarker,
    decode_write_txn_markers,
    encode_write_txn_markers_response,
)


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersHandler:
    """One partition's failure is that partition's error code."""

    partitions: Partitions
    clock: Clock
    loop: asyncio.AbstractEventLoop
    timeout_ms: int

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        markers = decode_write_txn_markers(frame, header.body_position, header.api_version)
        writing = self._begin(markers)
        if writing.missing == 0:
            return _encode(header, markers, writing.codes())
        return self._wait(connection, header, markers, writing)

    def write(
        self, markers: Sequence[TransactionMarker]
    ) -> "asyncio.Future[Sequence[MarkerResult]]":
        """The same for a coordinator on this broker."""
        written: asyncio.Future[Sequence[MarkerResult]] = self.loop.create_future()
        writing = self._begin(markers)

        def complete(codes: Sequence[int]) -> None:
            if not written.done():
                written.set_result(_results(markers, codes))

        if writing.missing == 0:
            complete(writing.codes())
        else:
            writing.park(complete).expire_after(self.loop, self.timeout_ms / 1000)
        return written

    def _begin(self, markers: Sequence[TransactionMarker]) -> "_Writing":
        writing = _Writing()
        now_ms = self.clock.now_ms()
        for marker in markers:
            told = _marker(marker)
            for topic, partitions in marker.topics:
                for partition in partitions:
                    self._append(topic, partition, told, writing, now_ms)
        return writing

    def _append(
        self, topic: str, partition: int, marker: Marker, writing: "_Writing", now_ms: int
    ) -> None:
        settle = writing.add()
        runner = self.partitions.find(topic, partition)
        if runner is None or runner.is_offline:
            writing.settle_last(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        result = runner.append_marker(marker, now_ms=now_ms, settle=settle)
        if result is not None:
            settle(result)

    def _wait(
        self,
        connection: Connection,
        header: RequestHeader,
        markers: Sequence[TransactionMarker],
        writing: "_Writing",
    ) -> PendingAnswer:
        pending = PendingAnswer(connection, exclusive=False)

        def complete(codes: Sequence[int]) -> None:
            # Called in the middle of work for other clients, which goes on whatever happens here.
            with AtTheCostOf(connection, header.api_key):
                if pending.is_wanted:
                    pending.complete([_encode(header, markers, codes)])

        parked = writing.park(complete)
        pending.on_abandoned(parked.abandon)
        parked.expire_after(self.loop, self.timeout_ms / 1000)
        return pending


class _Writing:
    """What has become of the markers so far, in the order of the request."""

    __slots__ = ("_codes", "_parked")

    def __init__(self) -> None:
        self._codes: list[int | None] = []
        self._parked: ParkedProduce[int] | None = None

    @property
    def missing(self) -> int:
        return self._codes.count(None)

    def add(self) -> Settle:
        """One more; what is returned is to be told its outcome."""
        self._codes.append(None)
        return partial(self._settle, len(self._codes) - 1)

    def settle_last(self, code: ErrorCode) -> None:
        self._codes[-1] = code

    def _settle(self, slot: int, result: PartitionProduceResult) -> None:
        if self._parked is None:
            self._codes[slot] = result.error_code
        else:
            self._parked.settle(slot, result.error_code)

    def codes(self) -> list[int]:
        return [code for code in self._codes if code is not None]

    def park(self, complete: Callable[[Sequence[int]], None]) -> ParkedProduce[int]:
        self._parked = ParkedProduce(
            self._codes,
            missing=self.missing,
            complete=complete,
            expired=lambda _slot: ErrorCode.REQUEST_TIMED_OUT,
        )
        return self._parked


def _marker(marker: TransactionMarker) -> Marker:
    control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    return Marker(
        ProducerId(marker.producer_id),
        ProducerEpoch(marker.producer_epoch),
        TransactionEnd(control_type, marker.coordinator_epoch),
        marker.transaction_version,
    )


def _encode(
    header: RequestHeader, markers: Sequence[TransactionMarker], codes: Sequence[int]
) -> bytes:
    results = _results(markers, codes)
    return encode_write_txn_markers_response(header.api_version, header.correlation_id, results)


def _results(markers: Sequence[TransactionMarker], codes: Sequence[int]) -> list[MarkerResult]:
    following = iter(codes)
    return [
        MarkerResult(
            marker.producer_id,
            [
                (topic, [(partition, next(following)) for partition in partitions])
                for topic, partitions in marker.topics
            ],
        )
        for marker in markers
    ]
