"""What one Produce and the next have in common. benchmarks/request_path.py.

A producer that writes to one topic sends the same bytes over and over: header, acks, time-out and
topic. Only the correlation id, the partition and the records differ. So the bytes of the last
request are compared rather than decoded, and its answer is a form with a few blanks:

    api key, version │ correlation id │ client id ... topic │ partition │ length │ records │ 0 0 0
    └──── same ─────┘                 └─────── same ───────┘

Whatever does not fit - several partitions, tagged fields, an error to tell - takes the ordinary way
through `produce.py`; a template never decides anything that the decoder would decide otherwise.
"""

import struct
from typing import Final

from tidelog.base.errors import WireError
from tidelog.base.ports import BytesLike
from tidelog.wire.api import RequestHeader
from tidelog.wire.primitives import NO_UUID, compact_string, read_uvarint, uvarint
from tidelog.wire.produce import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_ID,
    PartitionProduceResult,
    ProduceRequest,
)

_AFTER_CORRELATION_ID: Final = 8
_PARTITION_BYTES: Final = 4
# No tagged fields of the partition, of the topic, of the request.
_END: BytesLike = b"\x00\x00\x00"
# No record errors, no message, no tagged fields of the partition; then the topic's and the
# throttle time and tagged fields of the answer.
ANSWER_END: Final = b"\x01\x00\x00" + b"\x00" + b"\x00\x00\x00\x00" + b"\x00"


class ProduceTemplate:
    """Recognises requests like one that was decoded, and writes their answers."""

    __slots__ = (
        "_answer",
        "_answer_bytes",
        "_head",
        "acks",
        "common",
        "common_end",
        "common_start",
        "named",
        "timeout_ms",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        frame: memoryview,
        common_end: int,
        *,
        topic: str | None,
        topic_id: bytes | None,
        acks: int,
        timeout_ms: int,
    ) -> None:
        """Only for `template_of`."""
        self.topic = topic
        self.topic_id = topic_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self._head = struct.Struct(f">4si{common_end - _AFTER_CORRELATION_ID}si")
        self.common_start, _, self.common, _ = self._head.unpack_from(frame)
        self.common_end = common_end
        named = compact_string(topic) if topic is not None else topic_id or NO_UUID
        # Tagged fields of the header, one topic, its name or id, one partition.
        self.named = b"\x00\x02" + named + b"\x02"
        self._answer = struct.Struct(f">ii{len(self.named)}sihqqq{len(ANSWER_END)}s")
        self._answer_bytes = self._answer.size - 4

    def match(self, frame: memoryview) -> tuple[int, int, memoryview] | None:
        """Correlation id, partition and records of a request like the last one, or None."""
        head = self._head
        if len(frame) <= head.size:
            return None
        start, correlation_id, common, partition = head.unpack_from(frame)
        if common != self.common or start != self.common_start:
            return None
        try:
            length, position = read_uvarint(frame, head.size)
        except (WireError, IndexError):
            return None
        end = position + length - 1
        if length == 0 or frame[end:] != _END:
            return None
        return correlation_id, partition, frame[position:end]

    def answer(self, correlation_id: int, result: PartitionProduceResult) -> bytes | None:
        """The whole frame that answers with `result`; None if there is more to say than offsets."""
        partition, code, base_offset, append_time_ms, log_start, errors, message, leader = result
        if errors or message is not None or leader is not None:
            return None
        return self._answer.pack(
            self._answer_bytes,
            correlation_id,
            self.named,
            partition,
            code,
            base_offset,
            append_time_ms,
            log_start,
            ANSWER_END,
        )


def template_of(
    frame: memoryview, header: RequestHeader, request: ProduceRequest
) -> ProduceTemplate | None:
    """A template for requests like this one, if it is of the simple kind."""
    if header.api_version < FIRST_FLEXIBLE or len(request.topics) != 1:
        return None
    if request.acks not in (-1, 1):  # No answer to write, or a refusal.
        return None
    topic, topic_id, partitions = request.topics[0]
    if len(partitions) != 1 or request.transactional_id is not None:
        return None
    _partition, records = partitions[0]
    if records is None or frame[-len(_END) :] != _END:
        return None
    length = uvarint(len(records) + 1)
    start = len(frame) - len(_END) - len(records)
    common_end = start - len(length) - _PARTITION_BYTES
    if common_end < header.body_position or frame[start - len(length) : start] != length:
        return None
    assert (topic_id is None) == (header.api_version < FIRST_WITH_TOPIC_ID)
    return ProduceTemplate(
        frame,
        common_end,
        topic=topic,
        topic_id=topic_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
    )
