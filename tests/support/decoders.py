"""Every request decoder of the broker behind one signature, and a valid request for each."""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from kio.index import load_request_schema

from tests.support.kio_codec import encode, example
from tidelog.wire.add_partitions_to_txn import decode_add_partitions_to_txn
from tidelog.wire.api import SUPPORTED, ApiKey, request_header_version
from tidelog.wire.api_versions import decode_api_versions
from tidelog.wire.end_txn import decode_add_offsets_to_txn, decode_end_txn
from tidelog.wire.fetch import decode_fetch
from tidelog.wire.heartbeat import decode_heartbeat
from tidelog.wire.init_producer_id import decode_init_producer_id
from tidelog.wire.leave_group import decode_leave_group
from tidelog.wire.list_offsets import decode_list_offsets
from tidelog.wire.messages import decode_request
from tidelog.wire.metadata import decode_metadata
from tidelog.wire.offset_commit import decode_offset_commit
from tidelog.wire.offset_fetch import decode_offset_fetch
from tidelog.wire.offset_for_leader_epoch import decode_offset_for_leader_epoch
from tidelog.wire.produce import decode_produce

Decoder = Callable[[memoryview, int, int], object]

_HAND_WRITTEN: Mapping[ApiKey, Decoder] = {
    ApiKey.PRODUCE: decode_produce,
    ApiKey.FETCH: decode_fetch,
    ApiKey.LIST_OFFSETS: decode_list_offsets,
    ApiKey.METADATA: decode_metadata,
    ApiKey.OFFSET_COMMIT: decode_offset_commit,
    ApiKey.OFFSET_FETCH: decode_offset_fetch,
    ApiKey.HEARTBEAT: decode_heartbeat,
    ApiKey.LEAVE_GROUP: decode_leave_group,
    ApiKey.API_VERSIONS: decode_api_versions,
    ApiKey.INIT_PRODUCER_ID: decode_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: decode_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: decode_add_offsets_to_txn,
    ApiKey.END_TXN: decode_end_txn,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: decode_offset_for_leader_epoch,
}


def _decode_message(api_key: ApiKey, view: memoryview, position: int, version: int) -> object:
    return decode_request(api_key, version, view, position)


DECODERS: Mapping[ApiKey, Decoder] = {
    key: _HAND_WRITTEN.get(key, partial(_decode_message, key)) for key in SUPPORTED
}

SUPPORTED_VERSIONS = [
    (key, version)
    for key, (lowest, highest) in SUPPORTED.items()
    for version in range(lowest, highest + 1)
]


def example_body(api_key: ApiKey, version: int) -> bytes:
    """The body of a valid request in which every array has one element."""
    return encode(example(load_request_schema(api_key, version)))


def example_requests() -> Iterator[bytes]:
    """A valid request, header included and length not, of every supported version."""
    for api_key, version in SUPPORTED_VERSIONS:
        header = struct.pack(">hhih", api_key, version, 7, 6) + b"client"
        if request_header_version(api_key, version) == 2:
            header += b"\x00"
        yield header + example_body(api_key, version)
