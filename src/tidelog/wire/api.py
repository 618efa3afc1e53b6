"""Kafka's APIs: their numbers, the versions served here, and the header of a request.

What a request's header looks like depends on the API and its version, so it is decoded before
anything is known about the body:

    v1   api key │ api version │ correlation id │ client id
    v2   ... │ client id │ tagged fields            "flexible" versions, KIP-482

A response's header is the correlation id, followed by tagged fields if the version is flexible;
ApiVersions never has them, because its reader does not know yet what we speak (KIP-511).

Keys 4 to 7 are what brokers of Kafka's ZooKeeper days said to each other; Kafka 4 has dropped them.
Here they carry the same words in layouts of our own, all of them flexible.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.base.errors import WireError
from tidelog.wire.primitives import skip_tagged_fields


class ApiKey(IntEnum):
    """Every API that Kafka has given a number to, served here or not."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    FIND_RECORDS = 127
    """Our own, with a number that Kafka will not need soon (`find_records.py`)."""


class VersionRange(NamedTuple):
    """Versions of one API, both ends included."""

    lowest: int
    highest: int


class RequestHeader(NamedTuple):
    """What precedes the body of a request. `body_position` counts from the api key."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


# The ranges of a Kafka 4.3 broker; tests/compatibility/golden/kafka-4.3.0-api-versions.json.
SUPPORTED: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {
        ApiKey.PRODUCE: VersionRange(3, 13),
        ApiKey.FETCH: VersionRange(4, 18),
        ApiKey.LIST_OFFSETS: VersionRange(1, 11),
        ApiKey.METADATA: VersionRange(0, 13),
        ApiKey.OFFSET_COMMIT: VersionRange(2, 10),
        ApiKey.OFFSET_FETCH: VersionRange(1, 10),
        ApiKey.FIND_COORDINATOR: VersionRange(0, 6),
        ApiKey.JOIN_GROUP: VersionRange(0, 9),
        ApiKey.HEARTBEAT: VersionRange(0, 4),
        ApiKey.LEAVE_GROUP: VersionRange(0, 5),
        ApiKey.SYNC_GROUP: VersionRange(0, 5),
        ApiKey.DESCRIBE_GROUPS: VersionRange(0, 6),
        ApiKey.LIST_GROUPS: VersionRange(0, 5),
        ApiKey.API_VERSIONS: VersionRange(0, 4),
        ApiKey.CREATE_TOPICS: VersionRange(2, 7),
        ApiKey.DELETE_TOPICS: VersionRange(1, 6),
        ApiKey.DELETE_RECORDS: VersionRange(0, 2),
        ApiKey.INIT_PRODUCER_ID: VersionRange(0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: VersionRange(2, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: VersionRange(0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
        ApiKey.END_TXN: VersionRange(0, 5),
        ApiKey.WRITE_TXN_MARKERS: VersionRange(1, 2),
        ApiKey.TXN_OFFSET_COMMIT: VersionRange(0, 5),
        ApiKey.DESCRIBE_CONFIGS: VersionRange(1, 4),
        ApiKey.ALTER_CONFIGS: VersionRange(0, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: VersionRange(1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: VersionRange(1, 5),
        ApiKey.CREATE_PARTITIONS: VersionRange(0, 3),
        ApiKey.DELETE_GROUPS: VersionRange(0, 2),
        ApiKey.ELECT_LEADERS: VersionRange(0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
        ApiKey.OFFSET_DELETE: VersionRange(0, 0),
        ApiKey.UPDATE_FEATURES: VersionRange(0, 2),
        ApiKey.DESCRIBE_CLUSTER: VersionRange(0, 2),
        ApiKey.DESCRIBE_PRODUCERS: VersionRange(0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
        ApiKey.LIST_TRANSACTIONS: VersionRange(0, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 1),
        ApiKey.LIST_CONFIG_RESOURCES: VersionRange(0, 1),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0),
    }
)

# What ApiVersions answers. Produce 0 to 2 are listed and then refused, as Kafka does (KAFKA-18659):
# librdkafka up to 2.11 takes their absence for a broker that cannot store compressed batches and
# silently sends everything uncompressed. Clients pick the highest version, so none uses them.
ADVERTISED: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {**SUPPORTED, ApiKey.PRODUCE: VersionRange(0, SUPPORTED[ApiKey.PRODUCE].highest)}
)

# What brokers say to each other besides Fetch, and what our own command line asks; other clients
# are not told.
INTER_BROKER: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {
        ApiKey.LEADER_AND_ISR: VersionRange(0, 0),
        ApiKey.STOP_REPLICA: VersionRange(0, 0),
        ApiKey.UPDATE_METADATA: VersionRange(0, 0),
        ApiKey.CONTROLLED_SHUTDOWN: VersionRange(0, 0),
        ApiKey.ALTER_PARTITION: VersionRange(3, 3),
        ApiKey.ENVELOPE: VersionRange(0, 0),
        ApiKey.FIND_RECORDS: VersionRange(0, 0),
    }
)

_NEVER_FLEXIBLE = 2**15

# APIs that are not listed have been flexible from their first version on.
_FIRST_FLEXIBLE: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.SASL_HANDSHAKE: _NEVER_FLEXIBLE,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.OFFSET_DELETE: _NEVER_FLEXIBLE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
}

# By plain numbers, because a look-up happens on every request.
_FIRST_FLEXIBLE_BY_KEY: Final = {int(key): _FIRST_FLEXIBLE.get(key, 0) for key in ApiKey}

_HEADER_V1 = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields."""
    return version >= _FIRST_FLEXIBLE_BY_KEY[api_key]


def request_header_version(api_key: int, version: int) -> int:
    """1 or 2; see the module's drawing."""
    return 2 if is_flexible(api_key, version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 if tagged fields follow the correlation id, else 0."""
    return 1 if is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS else 0


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """The header of a request, without the length that precedes it."""
    data = client_id.encode()
    header = _HEADER_V1.pack(api_key, version, correlation_id, len(data)) + data
    return header + b"\x00" if is_flexible(api_key, version) else header


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of a response, without the length that precedes it."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\x00" if response_header_version(api_key, version) else header


def decode_request_header(view: memoryview) -> RequestHeader:
    """The header of the request that `view` holds, whatever its version.

    The api key is one that Kafka knows; the version may be any number.
    """
    try:
        api_key, version, correlation_id, client_id_bytes = _HEADER_V1.unpack_from(view)
        first_flexible = _FIRST_FLEXIBLE_BY_KEY.get(api_key)
        if first_flexible is None:
            raise WireError(f"unknown api key {api_key}")
        position = 10
        client_id = None
        if client_id_bytes >= 0:
            position += client_id_bytes
            if position > len(view):
                raise WireError(f"client id of {client_id_bytes} bytes in {len(view)}")
            client_id = str(view[10:position], "utf-8")
        if version >= first_flexible:
            position = skip_tagged_fields(view, position)
        return tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id, position))
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"request header: {error}") from error


def decode_response_header(view: memoryview, api_key: int, version: int) -> tuple[int, int]:
    """The correlation id of the response that `view` holds, and the position of its body.

    Only who knows the correlation id knows which request is answered, hence api key and version:
    answers on one connection come in the order of the requests.
    """
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(view)[0]
    except struct.error as error:
        raise WireError(f"response header: {error}") from error
    if response_header_version(api_key, version):
        return correlation_id, skip_tagged_fields(view, 4)
    return correlation_id, 4
