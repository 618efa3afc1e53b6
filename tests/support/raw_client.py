"""A client for requests that no client library would send, and for answers that they hide.

Requests are written down as values in the newest shape; kio takes from them what a version has.
Every convenience here says its fields' defaults once, so that a test shows only what is odd.
"""

import datetime
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from kio.index import load_request_schema
from kio.static.protocol import Payload

from tests.support.kio_codec import Values, build, milliseconds
from tests.support.message_client import TIMEOUT_S, ConnectionClosed, MessageClient
from tests.support.server_process import wait_until
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey

PRODUCE_VERSION = 13
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 10
METADATA_VERSION = 13
ACKS_ALL = -1

_FIRST_FETCH_WITH_TOPIC_IDS = 13
_INIT_PRODUCER_ID_VERSION = 5
_EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Topic:
    """Both names of a topic: requests use one or the other, depending on their version."""

    name: str
    id: uuid.UUID


class Produced(NamedTuple):
    """What a Produce answer says of one partition."""

    code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[tuple[int, str | None], ...]
    message: str | None


class Fetched(NamedTuple):
    """What a Fetch answer says of one partition."""

    code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int]
    aborted: tuple[object, ...] | None
    records: bytes


class FetchAnswer(NamedTuple):
    code: int
    session_id: int
    partitions: Mapping[tuple[str, int], Fetched]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFrom:
    """One partition of a Fetch request."""

    topic: Topic
    partition: int = 0
    offset: int = 0
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1_048_576


class RawClient(MessageClient):
    """One connection to a broker on this machine."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)

    def request(self, api_key: ApiKey, version: int, values: Values) -> Any:
        """The answer, as kio's class of that version."""
        return self.ask(_message(api_key, version, values))

    def tell(self, api_key: ApiKey, version: int, values: Values) -> None:
        """Send a request that has no answer."""
        self._send(self._encode(_message(api_key, version, values)))

    def begin(self, api_key: ApiKey, version: int, values: Values) -> Payload:
        """Send a request whose answer may take its time: `answer_to` waits for it."""
        request = _message(api_key, version, values)
        self._send(self._encode(request))
        return request

    def is_closed(self) -> bool:
        """Whether the broker has closed this connection, or does so now."""
        try:
            self._read(1)
        except ConnectionClosed:
            return True
        return False

    def topic(self, name: str) -> Topic:
        """The topic, once the broker leads all of it."""
        wait_until(lambda: self._is_led(name), within_s=TIMEOUT_S, what=f"{name} is led")
        return self.known_topic(name)

    def known_topic(self, name: str) -> Topic:
        """The topic, whoever leads it."""
        return Topic(name, self.metadata({"name": name, "topic_id": None}).topic_id)

    def _is_led(self, name: str) -> bool:
        described = self.metadata({"name": name, "topic_id": None})
        codes = {described.error_code, *(part.error_code for part in described.partitions)}
        return codes == {ErrorCode.NONE} and all(
            self.list_offsets(name, -1, partition=part.partition_index)[0] == ErrorCode.NONE
            for part in described.partitions
        )

    def metadata(
        self, topic: Values, *, version: int = METADATA_VERSION, auto_create: bool = False
    ) -> Any:
        """What is said of the one topic that is asked for."""
        values = {
            "topics": [topic],
            "allow_auto_topic_creation": auto_create,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        }
        (described,) = self.request(ApiKey.METADATA, version, values).topics
        return described

    def produce(
        self,
        topic: Topic,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        acks: int = ACKS_ALL,
        transactional_id: str | None = None,
        version: int = PRODUCE_VERSION,
    ) -> Produced:
        """Send what may or may not be a batch to one partition."""
        values = produce_values(
            {topic: {partition: records}}, acks=acks, transactional_id=transactional_id
        )
        return _only_produced(self.request(ApiKey.PRODUCE, version, values))

    def produce_later(self, topic: Topic, records: bytes | bytearray) -> Callable[[], Produced]:
        """Send a batch with acks=1 to the first partition; what is returned reads the answer."""
        values = produce_values({topic: {0: records}})
        request = _message(ApiKey.PRODUCE, PRODUCE_VERSION, values)
        self._send(self._encode(request))
        return lambda: _only_produced(self.answer_to(request))

    def fetch(
        self,
        *wanted: FetchFrom,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten: Sequence[FetchFrom] = (),
        isolation_level: int = 0,
        min_bytes: int = 0,
        max_wait_ms: int = 0,
        max_bytes: int = 2**31 - 1,
        replica_id: int = -1,
        version: int = FETCH_VERSION,
    ) -> FetchAnswer:
        """Without session arguments: a fetch outside of any session."""
        values = {
            "replica_id": replica_id,
            "max_wait": milliseconds(max_wait_ms),
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation_level,
            "session_id": session_id,
            "session_epoch": session_epoch,
            "topics": [_fetch_topic(one) for one in wanted],
            "forgotten_topics_data": [
                {"topic": one.topic.name, "topic_id": one.topic.id, "partitions": (one.partition,)}
                for one in forgotten
            ],
            "rack_id": "",
        }
        answer = self.request(ApiKey.FETCH, version, values)
        names = {one.topic.id: one.topic.name for one in (*wanted, *forgotten)}
        return FetchAnswer(
            int(getattr(answer, "error_code", 0)),
            getattr(answer, "session_id", 0),
            {
                (_name(topic, names, version), part.partition_index): _fetched(part)
                for topic in answer.responses
                for part in topic.partitions
            },
        )

    def list_offsets(
        self,
        topic: str,
        timestamp_ms: int,
        *,
        partition: int = 0,
        leader_epoch: int = -1,
        version: int = LIST_OFFSETS_VERSION,
    ) -> tuple[int, int, int]:
        """Code, offset and timestamp."""
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": milliseconds(1_000),
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "current_leader_epoch": leader_epoch,
                            "timestamp": timestamp_ms,
                        }
                    ],
                }
            ],
        }
        (answered,) = self.request(ApiKey.LIST_OFFSETS, version, values).topics
        (found,) = answered.partitions
        return int(found.error_code), found.offset, found.timestamp

    def new_producer_id(self) -> int:
        while True:
            answer = self.init_producer_id({})
            # Kafka says this as long as it waits for a block of ids.
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert answer.error_code == ErrorCode.NONE
                return int(answer.producer_id)

    def init_producer_id(self, fields: Values) -> Any:
        values = {
            "transactional_id": None,
            "transaction_timeout": milliseconds(60_000),
            "producer_id": -1,
            "producer_epoch": -1,
        }
        return self.request(
            ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, {**values, **fields}
        )


def produce_values(
    batches: Mapping[Topic, Mapping[int, bytes | bytearray | None]],
    *,
    acks: int = ACKS_ALL,
    transactional_id: str | None = None,
) -> Values:
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": milliseconds(5_000),
        "topic_data": [
            {
                "name": topic.name,
                "topic_id": topic.id,
                "partition_data": [
                    {"index": index, "records": None if records is None else bytes(records)}
                    for index, records in partitions.items()
                ],
            }
            for topic, partitions in batches.items()
        ],
    }


def _message(api_key: ApiKey, version: int, values: Values) -> Payload:
    return cast("Payload", build(load_request_schema(api_key, version), values))


def _only_produced(response: Any) -> Produced:
    (answered,) = response.responses
    (result,) = answered.partition_responses
    return _produced(result)


def _produced(result: Any) -> Produced:
    appended = result.log_append_time
    return Produced(
        int(result.error_code),
        result.base_offset,
        -1 if appended is None else round((appended - _EPOCH) / milliseconds(1)),
        getattr(result, "log_start_offset", -1),
        tuple(
            (error.batch_index, error.batch_index_error_message)
            for error in getattr(result, "record_errors", ())
        ),
        getattr(result, "error_message", None),
    )


def _fetch_topic(one: FetchFrom) -> Values:
    return {
        "topic": one.topic.name,
        "topic_id": one.topic.id,
        "partitions": [
            {
                "partition": one.partition,
                "current_leader_epoch": one.leader_epoch,
                "fetch_offset": one.offset,
                "last_fetched_epoch": one.last_fetched_epoch,
                "log_start_offset": -1,
                "partition_max_bytes": one.max_bytes,
            }
        ],
    }


def _name(answered: Any, names: Mapping[uuid.UUID, str], version: int) -> str:
    if version < _FIRST_FETCH_WITH_TOPIC_IDS:
        return str(answered.topic)
    return names.get(answered.topic_id, str(answered.topic_id))


def _fetched(part: Any) -> Fetched:
    diverging = getattr(part, "diverging_epoch", None)
    return Fetched(
        int(part.error_code),
        part.high_watermark,
        part.last_stable_offset,
        getattr(part, "log_start_offset", -1),
        (-1, -1) if diverging is None else (diverging.epoch, diverging.end_offset),
        part.aborted_transactions,
        bytes(part.records or b""),
    )
