"""LeaderAndIsr: the controller gives a broker its roles. The only thing that does.

A layout of our own, see cluster_states.py. A full request names every partition that the receiver
holds: what it does not name, the receiver is not to hold.
"""

from typing import NamedTuple

from tidelog.wire.api import (
    ApiKey,
    encode_request_header,
    encode_response_header,
    is_flexible,
)
from tidelog.wire.cluster_states import (
    ControlHeader,
    FailedPartition,
    TopicStates,
    decode_broker_epochs,
    decode_control_header,
    decode_failures,
    decode_topic_states,
    encode_broker_epochs,
    encode_control_header,
    encode_failures,
    encode_topic_states,
)
from tidelog.wire.primitives import Reader, frame


class LeaderAndIsrRequest(NamedTuple):
    """live_brokers: (broker id, broker epoch), ..."""

    header: ControlHeader
    is_full: bool
    live_brokers: list[tuple[int, int]]
    topics: list[TopicStates]


class LeaderAndIsrResponse(NamedTuple):
    """Partitions that are not listed are as they should be, unless all have failed."""

    error_code: int
    partitions: list[FailedPartition]


def encode_leader_and_isr_request(
    version: int, correlation_id: int, client_id: str, request: LeaderAndIsrRequest
) -> bytes:
    """The whole frame of a request."""
    return frame(
        [
            encode_request_header(ApiKey.LEADER_AND_ISR, version, correlation_id, client_id),
            encode_control_header(request.header),
            b"\x01" if request.is_full else b"\x00",
            encode_broker_epochs(request.live_brokers),
            encode_topic_states(request.topics),
            b"\x00",
        ]
    )


def decode_leader_and_isr(view: memoryview, position: int, version: int) -> LeaderAndIsrRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.LEADER_AND_ISR, version))
    request = LeaderAndIsrRequest(
        header=decode_control_header(reader),
        is_full=reader.boolean(),
        live_brokers=decode_broker_epochs(reader),
        topics=decode_topic_states(reader),
    )
    reader.end_structure()
    return request


def encode_leader_and_isr_response(
    version: int, correlation_id: int, response: LeaderAndIsrResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    header = encode_response_header(ApiKey.LEADER_AND_ISR, version, correlation_id)
    return frame([header, encode_failures(response.error_code, response.partitions)])


def decode_leader_and_isr_response(
    view: memoryview, position: int, version: int
) -> LeaderAndIsrResponse:
    """The answer whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.LEADER_AND_ISR, version))
    return LeaderAndIsrResponse(*decode_failures(reader))
