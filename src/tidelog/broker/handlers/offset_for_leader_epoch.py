"""OffsetForLeaderEpoch (23): where a leader epoch ended, so that a reader can tell whether its log
and ours have parted (R7, KIP-320).
"""

from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import RequestRefused
from tidelog.base.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.large_requests import LARGE_BYTES, LargeRequests, in_turns
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import RequestTasks
from tidelog.wire.api import RequestHeader
from tidelog.wire.offset_for_leader_epoch import (
    EpochAnswer,
    EpochQuery,
    decode_offset_for_leader_epoch,
    encode_offset_for_leader_epoch_response,
)


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochHandler:
    """One query's failure is that query's answer; it never fails its neighbours."""

    partitions: Partitions
    tasks: RequestTasks
    large: LargeRequests

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        if len(frame) > LARGE_BYTES:
            work = partial(self._answer_large, bytes(frame), header)
            return self.tasks.answer(connection, header.api_key, work)
        request = decode_offset_for_leader_epoch(frame, header.body_position, header.api_version)
        return _encode(
            header,
            [
                (topic, [self._answer(topic, query) for query in queries])
                for topic, queries in request.topics
            ],
        )

    async def _answer_large(
        self, frame: bytes, header: RequestHeader, pending: PendingAnswer
    ) -> None:
        async with self.large.turn(len(frame)):
            if not pending.is_wanted:
                return
            request = await self.large.aside.run(
                partial(
                    decode_offset_for_leader_epoch,
                    memoryview(frame),
                    header.body_position,
                    header.api_version,
                ),
                count=len(frame),
            )
            topics = [
                (topic, [self._answer(topic, query) async for query in in_turns(queries)])
                async for topic, queries in in_turns(request.topics)
            ]
            answer = await self.large.aside.run(partial(_encode, header, topics), count=len(frame))
        if pending.is_wanted:
            pending.complete([answer])

    def _answer(self, topic: str, query: EpochQuery) -> EpochAnswer:
        try:
            runner = self.partitions.led(topic, query.partition, query.current_leader_epoch)
        except RequestRefused as refusal:
            return EpochAnswer(refusal.code, query.partition, NO_LEADER_EPOCH, NO_OFFSET)
        epoch = LeaderEpoch(query.leader_epoch)
        # An epoch that has written nothing yet ends where the log does.
        if epoch == runner.leader_epoch:
            return EpochAnswer(0, query.partition, epoch, runner.log.log_end_offset)
        end = runner.epochs.end_offset_for(epoch, log_end_offset=runner.log.log_end_offset)
        return EpochAnswer(0, query.partition, end.leader_epoch, end.end_offset)


def _encode(header: RequestHeader, topics: list[tuple[str, list[EpochAnswer]]]) -> bytes:
    return encode_offset_for_leader_epoch_response(
        header.api_version, header.correlation_id, topics, throttle_ms=0
    )
