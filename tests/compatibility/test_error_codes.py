"""Writing: the error codes and answers that clients hide are Kafka's (G1, D2).

Requests are made by hand. Each expectation was seen on Kafka 4.3 (`TIDELOG_SUBJECT=kafka`); where
`docs/divergences.md` says that tidelog knowingly answers otherwise, `otherwise` says what.
"""

import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.kafka_peer import Broker, StartBroker
from tests.support.batches import (
    accepted_batches,
    idempotent_batch,
    plain_batch,
    refused_batches,
    with_header,
)
from tests.support.clients import delete_records
from tests.support.golden import kafka_produce_codes
from tests.support.message_client import ConnectionClosed
from tests.support.raw_client import PRODUCE_VERSION, FetchFrom, RawClient, Topic, produce_values
from tests.support.server_process import wait_until
from tests.support.subject import ASKED, SUBJECT
from tests.support.topics import new_topic, stored_batches
from tidelog.base.errors import ErrorCode
from tidelog.records.batch import TRANSACTIONAL_FLAG, Codec, iter_headers
from tidelog.records.record import Record, encode_plain_batch
from tidelog.wire.api import ApiKey

EVERY_PRODUCE_VERSION = range(3, PRODUCE_VERSION + 1)
LAST_PRODUCE_BY_NAME = 12
FIRST_PRODUCE_WITH_MESSAGES = 8
HOUR_MS = 3_600_000
TIMEOUT_S = 30.0
NOBODY = Topic("nobody", uuid.UUID("00000000-0000-4000-8000-00000000abcd"))

# What tidelog knowingly answers, by the batch. The same as in tests/unit/records.
DIVERGENCES = {
    "one byte too many": ErrorCode.INVALID_RECORD,
    "a batch and a half": ErrorCode.INVALID_RECORD,
    "codec 5": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "log append time": ErrorCode.INVALID_TIMESTAMP,
    "no producer epoch": ErrorCode.INVALID_RECORD,
    "gzip of nothing": ErrorCode.NONE,
}


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


class TestBatches:
    @pytest.mark.parametrize("name", sorted(kafka_produce_codes()))
    def test_batch_is_answered_as_kafka_answers_it(
        self, broker: Broker, client: RawClient, name: str
    ) -> None:
        topic = _topic(broker, client)
        now_ms = _now_ms()
        batch = (refused_batches(now_ms) | accepted_batches(now_ms))[name]
        expected = otherwise(kafka_produce_codes()[name], DIVERGENCES.get(name))
        answer = client.produce(topic, batch)
        assert answer.code == expected
        stored = stored_batches(broker.data_folder, topic.name)
        assert len(stored) == (1 if expected == ErrorCode.NONE else 0)
        assert answer.base_offset == (0 if expected == ErrorCode.NONE else -1)

    @pytest.mark.parametrize("version", EVERY_PRODUCE_VERSION)
    def test_wrong_checksum_is_refused_by_every_version(
        self, broker: Broker, client: RawClient, version: int
    ) -> None:
        topic = _topic(broker, client)
        answer = client.produce(topic, refused_batches(0)["flipped bit"], version=version)
        assert answer.code == ErrorCode.CORRUPT_MESSAGE

    def test_one_refused_partition_does_not_spoil_its_neighbours(
        self, broker: Broker, client: RawClient
    ) -> None:
        topic = _topic(broker, client, partition_count=2)
        good, bad = plain_batch(timestamp_ms=_now_ms()), refused_batches(0)["flipped bit"]
        values = produce_values({topic: {0: good, 1: bad, 5: good}, NOBODY: {0: good}})
        answer = client.request(ApiKey.PRODUCE, PRODUCE_VERSION, values)
        assert {
            (answered.topic_id, result.index): int(result.error_code)
            for answered in answer.responses
            for result in answered.partition_responses
        } == {
            (topic.id, 0): ErrorCode.NONE,
            (topic.id, 1): ErrorCode.CORRUPT_MESSAGE,
            (topic.id, 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (NOBODY.id, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }

    def test_request_without_topics_is_answered(self, client: RawClient) -> None:
        assert client.request(ApiKey.PRODUCE, PRODUCE_VERSION, produce_values({})).responses == ()


class TestDestination:
    @pytest.mark.parametrize("acks", [2, -2, 32_767])
    def test_unknown_acks_are_refused(self, broker: Broker, client: RawClient, acks: int) -> None:
        topic = _topic(broker, client)
        answer = client.produce(topic, plain_batch(), acks=acks)
        assert answer.code == ErrorCode.INVALID_REQUIRED_ACKS
        assert stored_batches(broker.data_folder, topic.name) == []

    def test_unknown_topic_is_refused_by_name(self, client: RawClient) -> None:
        answer = client.produce(NOBODY, plain_batch(), version=LAST_PRODUCE_BY_NAME)
        assert answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_unknown_topic_is_refused_by_id(self, client: RawClient) -> None:
        assert client.produce(NOBODY, plain_batch()).code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize("version", [LAST_PRODUCE_BY_NAME, PRODUCE_VERSION])
    @pytest.mark.parametrize("partition", [1, -1])
    def test_unknown_partition_is_refused(
        self, broker: Broker, client: RawClient, version: int, partition: int
    ) -> None:
        topic = _topic(broker, client)
        answer = client.produce(topic, plain_batch(), partition=partition, version=version)
        assert answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_acks_0_is_not_answered(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        values = produce_values({topic: {0: plain_batch(timestamp_ms=_now_ms())}}, acks=0)
        client.tell(ApiKey.PRODUCE, PRODUCE_VERSION, values)
        # Every answer on this connection is that of the request before it.
        wait_until(
            lambda: client.list_offsets(topic.name, -1) == (ErrorCode.NONE, 3, -1),
            within_s=10,
            what="the records to be committed",
        )

    def test_refused_acks_0_closes_the_connection(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        values = produce_values({topic: {0: refused_batches(0)["flipped bit"]}}, acks=0)
        client.tell(ApiKey.PRODUCE, PRODUCE_VERSION, values)
        assert client.is_closed()

    def test_acks_all_is_content_with_the_replicas_there_can_be(
        self, broker: Broker, client: RawClient
    ) -> None:
        """KIP-966: `min.insync.replicas` beyond the replication factor asks for all replicas."""
        topic = _topic(broker, client, {"min.insync.replicas": "2"})
        answer = client.produce(topic, plain_batch(timestamp_ms=_now_ms()), acks=-1)
        assert answer.code == ErrorCode.NONE

    def test_transactional_batch_needs_a_transactional_id(
        self, broker: Broker, client: RawClient
    ) -> None:
        topic = _topic(broker, client)
        batch = _idempotent(client.new_producer_id(), attributes=TRANSACTIONAL_FLAG)
        answer = client.produce(topic, batch)
        assert answer.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class TestSettings:
    @pytest.mark.parametrize("version", EVERY_PRODUCE_VERSION)
    def test_log_append_time_is_in_the_answer(
        self, broker: Broker, client: RawClient, version: int
    ) -> None:
        topic = _topic(broker, client, {"message.timestamp.type": "LogAppendTime"})
        before_ms = _now_ms()
        answer = client.produce(topic, plain_batch(timestamp_ms=5), version=version)
        assert before_ms <= answer.log_append_time_ms <= _now_ms()
        (stored,) = stored_batches(broker.data_folder, topic.name)
        assert stored.max_timestamp_ms == answer.log_append_time_ms

    def test_create_time_is_not_in_the_answer(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        answer = client.produce(topic, plain_batch(timestamp_ms=_now_ms()))
        assert answer.log_append_time_ms == -1

    def test_timestamp_too_far_ahead_is_refused(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        answer = client.produce(topic, plain_batch(timestamp_ms=_now_ms() + 2 * HOUR_MS))
        assert answer.code == ErrorCode.INVALID_TIMESTAMP
        assert answer.message is not None

    def test_every_record_that_is_too_old_is_named(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client, {"message.timestamp.before.max.ms": str(HOUR_MS)})
        now_ms = _now_ms()
        ages = [0, 2 * HOUR_MS, 0, 3 * HOUR_MS]
        batch = _plain([(b"key", now_ms - age) for age in ages])
        answer = client.produce(topic, batch)
        assert answer.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _why in answer.record_errors] == [1, 3]

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    def test_every_null_key_of_a_compacted_topic_is_named(
        self, broker: Broker, client: RawClient, codec: Codec
    ) -> None:
        topic = _topic(broker, client, {"cleanup.policy": "compact"})
        now_ms = _now_ms()
        batch = _plain([(b"key", now_ms), (None, now_ms), (None, now_ms)], codec)
        for version in EVERY_PRODUCE_VERSION:
            answer = client.produce(topic, batch, version=version)
            assert answer.code == ErrorCode.INVALID_RECORD
            has_messages = version >= FIRST_PRODUCE_WITH_MESSAGES
            assert [index for index, _why in answer.record_errors] == [1, 2] * has_messages
            assert (answer.message is not None) == has_messages

    def test_zstd_needs_produce_7(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        batch = plain_batch(codec=Codec.ZSTD, timestamp_ms=_now_ms())
        refused = client.produce(topic, batch, version=6)
        assert refused.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert client.produce(topic, batch, version=7).code == ErrorCode.NONE

    @pytest.mark.parametrize("codec", list(Codec))
    def test_topic_of_one_codec_compresses_again(
        self, broker: Broker, client: RawClient, codec: Codec
    ) -> None:
        topic = _topic(broker, client, {"compression.type": "gzip"})
        answer = client.produce(topic, plain_batch(codec=codec, timestamp_ms=_now_ms()))
        assert answer.code == ErrorCode.NONE
        fetched = client.fetch(FetchFrom(topic=topic)).partitions[topic.name, 0]
        assert [header.codec for _position, header in iter_headers(fetched.records)] == [Codec.GZIP]

    def test_batch_larger_than_a_segment_is_refused(
        self, broker: Broker, client: RawClient
    ) -> None:
        sizes = {"segment.bytes": "1048576", "max.message.bytes": "2000000"}
        topic = _topic(broker, client, sizes)
        batch = encode_plain_batch([Record(0, _now_ms(), b"", bytes(1_100_000), ())], Codec.NONE)
        assert client.produce(topic, batch).code == ErrorCode.RECORD_LIST_TOO_LARGE

    def test_answer_names_the_start_of_the_log(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        client.produce(topic, plain_batch(timestamp_ms=_now_ms()))
        delete_records(broker.bootstrap, topic.name, 0, 2)
        answer = client.produce(topic, plain_batch(timestamp_ms=_now_ms()))
        assert (answer.base_offset, answer.log_start_offset) == (3, 2)


class TestSequences:
    """D2."""

    @pytest.mark.parametrize("version", EVERY_PRODUCE_VERSION)
    def test_repetition_is_answered_with_the_first_offset(
        self, broker: Broker, client: RawClient, version: int
    ) -> None:
        topic = _topic(broker, client)
        batch = _idempotent(client.new_producer_id())
        client.produce(topic, plain_batch(timestamp_ms=_now_ms()), version=version)
        first = client.produce(topic, batch, version=version)
        again = client.produce(topic, batch, version=version)
        assert (first.code, first.base_offset) == (ErrorCode.NONE, 3)
        assert (again.code, again.base_offset) == (ErrorCode.NONE, 3)
        assert (again.record_errors, again.message) == ((), None)
        assert len(stored_batches(broker.data_folder, topic.name)) == 2

    def test_five_batches_are_remembered(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        producer_id = client.new_producer_id()
        for sequence in range(0, 18, 3):
            client.produce(topic, _idempotent(producer_id, base_sequence=sequence))
        for sequence in range(3, 18, 3):
            answer = client.produce(topic, _idempotent(producer_id, base_sequence=sequence))
            assert (answer.code, answer.base_offset) == (ErrorCode.NONE, sequence)
        forgotten = client.produce(topic, _idempotent(producer_id, base_sequence=0))
        assert forgotten.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_repeated_log_append_time_is_the_first_one(
        self, broker: Broker, client: RawClient
    ) -> None:
        topic = _topic(broker, client, {"message.timestamp.type": "LogAppendTime"})
        batch = _idempotent(client.new_producer_id())
        first = client.produce(topic, batch)
        wait_until(
            lambda: _now_ms() > first.log_append_time_ms, within_s=TIMEOUT_S, what="time goes on"
        )
        assert client.produce(topic, batch) == first

    @pytest.mark.parametrize("sequence", [2, 4, 9, 2**31 - 1])
    def test_sequence_that_is_not_the_next_is_out_of_order(
        self, broker: Broker, client: RawClient, sequence: int
    ) -> None:
        topic = _topic(broker, client)
        producer_id = client.new_producer_id()
        client.produce(topic, _idempotent(producer_id))
        answer = client.produce(topic, _idempotent(producer_id, base_sequence=sequence))
        assert answer.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert len(stored_batches(broker.data_folder, topic.name)) == 1

    @pytest.mark.parametrize("sequence", [0, 42])
    def test_new_producer_may_start_anywhere(
        self, broker: Broker, client: RawClient, sequence: int
    ) -> None:
        """Its earlier records may have been deleted, and it forgotten with them."""
        topic = _topic(broker, client)
        batch = _idempotent(client.new_producer_id(), base_sequence=sequence)
        assert client.produce(topic, batch).code == ErrorCode.NONE

    def test_sequence_starts_over_after_the_largest(
        self, broker: Broker, client: RawClient
    ) -> None:
        topic = _topic(broker, client)
        producer_id = client.new_producer_id()
        last = _idempotent(producer_id, base_sequence=2**31 - 2)
        assert client.produce(topic, last).code == ErrorCode.NONE
        following = client.produce(topic, _idempotent(producer_id, base_sequence=1))
        assert (following.code, following.base_offset) == (ErrorCode.NONE, 3)
        assert client.produce(topic, last).base_offset == 0

    def test_older_epoch_is_refused(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        producer_id = client.new_producer_id()
        client.produce(topic, _idempotent(producer_id, producer_epoch=1))
        answer = client.produce(topic, _idempotent(producer_id, base_sequence=3))
        assert answer.code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_newer_epoch_starts_at_zero(self, broker: Broker, client: RawClient) -> None:
        topic = _topic(broker, client)
        producer_id = client.new_producer_id()
        client.produce(topic, _idempotent(producer_id))
        going_on = _idempotent(producer_id, producer_epoch=1, base_sequence=3)
        assert client.produce(topic, going_on).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        starting = _idempotent(producer_id, producer_epoch=1)
        assert client.produce(topic, starting).code == ErrorCode.NONE

    @pytest.mark.one_broker
    def test_repetition_is_recognised_after_a_crash(
        self, start_broker: StartBroker, tmp_path: Path
    ) -> None:
        broker = start_broker(tmp_path, {})
        with RawClient(broker.port) as client:
            topic = _topic(broker, client)
            producer_id = client.new_producer_id()
            for sequence in (0, 3):
                client.produce(topic, _idempotent(producer_id, base_sequence=sequence))
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            # Kafka's snapshot of its producers holds the last batch of each.
            answer = client.produce(topic, _idempotent(producer_id, base_sequence=3))
            assert (answer.code, answer.base_offset) == (ErrorCode.NONE, 3)
            gap = client.produce(topic, _idempotent(producer_id, base_sequence=9))
            assert gap.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert client.new_producer_id() > producer_id

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({}, ErrorCode.NONE),
            ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
            ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
            ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
            ({"producer_id": 5, "producer_epoch": 5}, ErrorCode.NONE),
        ],
    )
    def test_identity_is_whole_or_absent(
        self, client: RawClient, fields: dict[str, object], code: ErrorCode
    ) -> None:
        client.new_producer_id()
        assert client.init_producer_id(fields).error_code == code


class TestVersions:
    def test_unknown_version_of_api_versions_is_answered_in_version_0(
        self, client: RawClient
    ) -> None:
        """KIP-511: the client learns which versions it may use."""
        answer = client.ask_unknown(ApiKey.API_VERSIONS, 99)
        code, count = struct.unpack_from(">hi", answer)
        apis = [struct.unpack_from(">hhh", answer, 6 + 6 * n) for n in range(count)]
        assert code == ErrorCode.UNSUPPORTED_VERSION
        assert (ApiKey.API_VERSIONS, 0, 4) in apis
        assert len(answer) == 6 + 6 * count

    @pytest.mark.parametrize(
        ("api_key", "version"),
        [(0, 2), (0, 14), (1, 3), (1, 19), (3, 99), (18, -1), (999, 0), (-1, 0)],
    )
    def test_other_unknown_versions_close_the_connection(
        self, client: RawClient, api_key: int, version: int
    ) -> None:
        if api_key == ApiKey.API_VERSIONS:
            (code,) = struct.unpack_from(">h", client.ask_unknown(api_key, version))
            assert code == ErrorCode.UNSUPPORTED_VERSION
            return
        with pytest.raises(ConnectionClosed):
            client.ask_unknown(api_key, version)

    @pytest.mark.parametrize(
        ("name", "version", "code"),
        [
            ("client", "1.0.0-SNAPSHOT", ErrorCode.NONE),
            ("a client", "1", ErrorCode.INVALID_REQUEST),
            ("-client", "1", ErrorCode.INVALID_REQUEST),
            ("", "1", ErrorCode.INVALID_REQUEST),
            ("client", "", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_client_says_who_it_is_in_plain_letters(
        self, client: RawClient, name: str, version: str, code: ErrorCode
    ) -> None:
        values = {"client_software_name": name, "client_software_version": version}
        assert client.request(ApiKey.API_VERSIONS, 4, values).error_code == code


def otherwise(kafka: int, tidelog: int | None) -> int:
    """What the subject answers; None where the two agree."""
    return kafka if SUBJECT == "kafka" or tidelog is None else tidelog


def _topic(
    broker: Broker,
    client: RawClient,
    config: dict[str, str] | None = None,
    *,
    partition_count: int = 1,
) -> Topic:
    return client.topic(
        new_topic(broker.bootstrap, led_by=ASKED, partition_count=partition_count, config=config)
    )


def _now_ms() -> int:
    return int(time.time() * 1000)


def _plain(keys_and_times: list[tuple[bytes | None, int]], codec: Codec = Codec.NONE) -> bytearray:
    records = [
        Record(offset, timestamp_ms, key, b"value", ())
        for offset, (key, timestamp_ms) in enumerate(keys_and_times)
    ]
    return encode_plain_batch(records, codec)


def _idempotent(
    producer_id: int, *, base_sequence: int = 0, producer_epoch: int = 0, attributes: int = 0
) -> bytearray:
    """A batch of three records."""
    batch = idempotent_batch(
        producer_id=producer_id, base_sequence=base_sequence, producer_epoch=producer_epoch
    )
    now_ms = _now_ms()
    return with_header(
        batch, base_timestamp_ms=now_ms, max_timestamp_ms=now_ms, attributes=attributes
    )
