"""Reading: the error codes and answers that clients hide are Kafka's (G1, R4, R5).

Fetch with and without sessions (KIP-227), ListOffsets, OffsetForLeaderEpoch and Metadata, with
requests made by hand. Each expectation was seen on Kafka 4.3 (`TIDELOG_SUBJECT=kafka`).
"""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.kafka_peer import Broker, StartBroker
from tests.support.batches import plain_batch
from tests.support.clients import FIRST_TIMESTAMP_MS, delete_records
from tests.support.raw_client import (
    FETCH_VERSION,
    METADATA_VERSION,
    FetchAnswer,
    Fetched,
    FetchFrom,
    RawClient,
    Topic,
)
from tests.support.server_process import wait_until
from tests.support.subject import ASKED, SUBJECT
from tests.support.topics import new_topic, unused_name
from tidelog.base.errors import ErrorCode
from tidelog.records.batch import iter_headers
from tidelog.wire.api import ApiKey

EVERY_FETCH_VERSION = range(4, FETCH_VERSION + 1)
LAST_FETCH_BY_NAME = 12
FIRST_FETCH_WITH_LOG_START = 5
# Before, every request creates what it asks for.
FIRST_METADATA_WITH_A_CHOICE = 4
READ_COMMITTED = 1
TIMEOUT_S = 30.0
NOBODY = Topic("nobody", uuid.UUID("00000000-0000-4000-8000-00000000abcd"))
BATCH_BYTES = len(plain_batch())


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


@pytest.fixture
def topic(broker: Broker, client: RawClient) -> Topic:
    """Two partitions; in the first four batches of three records, a second apart."""
    made = client.topic(new_topic(broker.bootstrap, led_by=ASKED, partition_count=2))
    for n in range(4):
        _append(client, made, timestamp_ms=FIRST_TIMESTAMP_MS + 1_000 * n)
    return made


class TestFetch:
    @pytest.mark.parametrize("version", EVERY_FETCH_VERSION)
    def test_every_version_is_answered_with_records(
        self, client: RawClient, topic: Topic, version: int
    ) -> None:
        fetched = _only(client.fetch(FetchFrom(topic=topic), version=version))
        assert (fetched.code, fetched.high_watermark, fetched.last_stable_offset) == (0, 12, 12)
        assert fetched.log_start_offset == (0 if version >= FIRST_FETCH_WITH_LOG_START else -1)
        assert _base_offsets(fetched) == [0, 3, 6, 9]

    def test_unknown_topic_is_refused_by_name(self, client: RawClient) -> None:
        fetched = _only(client.fetch(FetchFrom(topic=NOBODY), version=LAST_FETCH_BY_NAME))
        assert _state(fetched) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)

    def test_unknown_topic_is_refused_by_id(self, client: RawClient) -> None:
        fetched = _only(client.fetch(FetchFrom(topic=NOBODY)))
        assert _state(fetched) == (ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, -1)

    @pytest.mark.parametrize("version", [LAST_FETCH_BY_NAME, FETCH_VERSION])
    def test_unknown_partition_is_refused(
        self, client: RawClient, topic: Topic, version: int
    ) -> None:
        fetched = _only(client.fetch(FetchFrom(topic=topic, partition=9), version=version))
        assert _state(fetched) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)

    @pytest.mark.parametrize("offset", [13, 2**62, -1, -5])
    def test_offset_outside_the_log_is_out_of_range(
        self, client: RawClient, topic: Topic, offset: int
    ) -> None:
        fetched = _only(client.fetch(FetchFrom(topic=topic, offset=offset)))
        assert _state(fetched) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1)

    def test_end_of_the_log_is_in_range(self, client: RawClient, topic: Topic) -> None:
        fetched = _only(client.fetch(FetchFrom(topic=topic, offset=12)))
        assert _state(fetched) == (ErrorCode.NONE, 12, 12, 0)
        assert fetched.records == b""

    def test_deleted_offset_is_out_of_range(
        self, broker: Broker, client: RawClient, topic: Topic
    ) -> None:
        delete_records(broker.bootstrap, topic.name, 0, 5)
        below = _only(client.fetch(FetchFrom(topic=topic, offset=4)))
        assert below.code == ErrorCode.OFFSET_OUT_OF_RANGE
        at_start = _only(client.fetch(FetchFrom(topic=topic, offset=5)))
        assert _state(at_start) == (ErrorCode.NONE, 12, 12, 5)
        # A batch is never cut: the client skips what it did not ask for.
        assert _base_offsets(at_start) == [3, 6, 9]

    def test_epoch_of_the_future_is_unknown(self, client: RawClient, topic: Topic) -> None:
        """KIP-320."""
        fetched = _only(client.fetch(FetchFrom(topic=topic, leader_epoch=5)))
        assert _state(fetched) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)

    def test_negative_epoch_is_no_claim(self, client: RawClient, topic: Topic) -> None:
        """In a fetch. Elsewhere only -1 is none, and what is below it is of the past."""
        for epoch in (-1, -2, -(2**31)):
            fetched = _only(client.fetch(FetchFrom(topic=topic, leader_epoch=epoch)))
            assert fetched.code == ErrorCode.NONE
        code, _, _ = client.list_offsets(topic.name, -1, leader_epoch=-2)
        assert code == ErrorCode.FENCED_LEADER_EPOCH
        code, _, _ = _epoch_end(client, topic.name, current=-2, asked=0)
        assert code == ErrorCode.FENCED_LEADER_EPOCH

    @pytest.mark.one_broker
    def test_epoch_of_the_past_is_fenced(self, start_broker: StartBroker, tmp_path: Path) -> None:
        """R7: whoever speaks of an earlier leader is told, whatever it asks."""
        broker = start_broker(tmp_path, {})
        with RawClient(broker.port) as client:
            topic = client.topic(new_topic(broker.bootstrap, led_by=ASKED))
            _append(client, topic)
        broker.restart()
        with RawClient(broker.port) as client:
            epoch = _leader_epoch(client, topic)
            assert epoch > 0
            past = FetchFrom(topic=topic, leader_epoch=epoch - 1)
            assert _only(client.fetch(past)).code == ErrorCode.FENCED_LEADER_EPOCH
            code, _, _ = client.list_offsets(topic.name, -1, leader_epoch=epoch - 1)
            assert code == ErrorCode.FENCED_LEADER_EPOCH
            assert _epoch_end(client, topic.name, current=epoch - 1, asked=0) == (
                ErrorCode.FENCED_LEADER_EPOCH,
                -1,
                -1,
            )
            assert _epoch_end(client, topic.name, current=epoch, asked=0) == (ErrorCode.NONE, 0, 3)

    def test_log_that_parted_is_told_where(self, client: RawClient, topic: Topic) -> None:
        """KIP-595: who read more in an epoch than there is gets its end in place of an error."""
        fetched = _only(client.fetch(FetchFrom(topic=topic, offset=20, last_fetched_epoch=0)))
        assert (fetched.code, fetched.diverging_epoch) == (ErrorCode.NONE, (0, 12))
        assert fetched.records == b""

    def test_log_that_agrees_is_read_on(self, client: RawClient, topic: Topic) -> None:
        fetched = _only(client.fetch(FetchFrom(topic=topic, offset=6, last_fetched_epoch=0)))
        assert (fetched.code, fetched.diverging_epoch) == (ErrorCode.NONE, (-1, -1))
        assert _base_offsets(fetched) == [6, 9]

    @pytest.mark.parametrize(
        ("limits", "expected"),
        [
            ((0, 2**31 - 1), [0]),
            ((1, 2**31 - 1), [0]),
            ((2**31 - 1, 0), [0]),
            ((2 * BATCH_BYTES - 1, 2**31 - 1), [0]),
            ((2 * BATCH_BYTES, 2**31 - 1), [0, 3]),
            ((2 * BATCH_BYTES + 10, 2**31 - 1), [0, 3]),
        ],
    )
    def test_first_batch_is_always_returned_whole(
        self, client: RawClient, topic: Topic, limits: tuple[int, int], expected: list[int]
    ) -> None:
        """KIP-74."""
        partition_max_bytes, max_bytes = limits
        wanted = FetchFrom(topic=topic, max_bytes=partition_max_bytes)
        fetched = _only(client.fetch(wanted, max_bytes=max_bytes))
        assert _base_offsets(fetched) == expected

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_limit_of_the_answer_is_used_up_in_the_order_of_the_request(
        self, client: RawClient, topic: Topic, order: tuple[int, int]
    ) -> None:
        _append(client, topic, partition=1)
        first, second = (FetchFrom(topic=topic, partition=n) for n in order)
        answer = client.fetch(first, second, max_bytes=1)
        assert _base_offsets(answer.partitions[topic.name, order[0]]) == [0]
        assert answer.partitions[topic.name, order[1]].records == b""

    def test_read_committed_lists_aborted_transactions(
        self, client: RawClient, topic: Topic
    ) -> None:
        wanted = FetchFrom(topic=topic)
        assert _only(client.fetch(wanted)).aborted is None
        assert _only(client.fetch(wanted, isolation_level=READ_COMMITTED)).aborted == ()

    def test_fetch_that_has_nothing_waits_its_time(self, client: RawClient, topic: Topic) -> None:
        started_s = time.monotonic()
        client.fetch(FetchFrom(topic=topic, offset=12), min_bytes=1, max_wait_ms=300)
        # Timers of both brokers count whole milliseconds, of which the first has begun already.
        assert time.monotonic() - started_s >= 0.298

    def test_refused_partition_ends_the_wait_of_all(self, client: RawClient, topic: Topic) -> None:
        started_s = time.monotonic()
        waiting = FetchFrom(topic=topic, offset=12)
        refused = FetchFrom(topic=topic, partition=1, offset=99)
        client.fetch(waiting, refused, min_bytes=1, max_wait_ms=20_000)
        assert time.monotonic() - started_s < 10


class TestSessions:
    """KIP-227."""

    @pytest.mark.parametrize("session_id", [0, 12345])
    def test_unknown_session_is_not_found(self, client: RawClient, session_id: int) -> None:
        answer = client.fetch(session_id=session_id, session_epoch=5)
        assert answer == FetchAnswer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, {})

    def test_first_answer_names_every_partition(self, client: RawClient, topic: Topic) -> None:
        answer = _new_session(client, *_both(topic))
        assert answer.code == ErrorCode.NONE
        assert answer.session_id > 0
        assert answer.partitions.keys() == {(topic.name, 0), (topic.name, 1)}

    def test_following_answers_name_what_has_news(self, client: RawClient, topic: Topic) -> None:
        at_end = FetchFrom(topic=topic, offset=12), FetchFrom(topic=topic, partition=1)
        session = _new_session(client, *at_end).session_id
        assert client.fetch(session_id=session, session_epoch=1).partitions == {}
        _append(client, topic, partition=1)
        news = _in_session(client, session, 2)
        assert news == {1: ErrorCode.NONE}
        # Until the client moves on, it is the same news.
        assert _in_session(client, session, 3) == {1: ErrorCode.NONE}
        moved = FetchFrom(topic=topic, partition=1, offset=3)
        assert _in_session(client, session, 4, moved) == {}

    def test_forgotten_partition_has_no_news(self, client: RawClient, topic: Topic) -> None:
        first, second = FetchFrom(topic=topic, offset=12), FetchFrom(topic=topic, partition=1)
        session = _new_session(client, first, second).session_id
        client.fetch(session_id=session, session_epoch=1, forgotten=[second])
        _append(client, topic, partition=1)
        assert _in_session(client, session, 2) == {}

    def test_session_without_partitions_ends(self, client: RawClient, topic: Topic) -> None:
        only = FetchFrom(topic=topic, offset=12)
        session = _new_session(client, only).session_id
        last = client.fetch(session_id=session, session_epoch=1, forgotten=[only])
        assert (last.code, last.session_id) == (ErrorCode.NONE, 0)
        gone = client.fetch(session_id=session, session_epoch=2)
        assert gone.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @pytest.mark.parametrize("epoch", [2, 7])
    def test_wrong_epoch_is_refused(self, client: RawClient, topic: Topic, epoch: int) -> None:
        session = _new_session(client, *_both(topic)).session_id
        answer = client.fetch(session_id=session, session_epoch=epoch)
        assert answer == FetchAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, {})
        # The session lives on.
        assert client.fetch(session_id=session, session_epoch=1).code == ErrorCode.NONE

    def test_epoch_counts_once(self, client: RawClient, topic: Topic) -> None:
        session = _new_session(client, *_both(topic)).session_id
        client.fetch(session_id=session, session_epoch=1)
        again = client.fetch(session_id=session, session_epoch=1)
        assert again.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def test_closed_session_is_not_found(self, client: RawClient, topic: Topic) -> None:
        session = _new_session(client, *_both(topic)).session_id
        closing = client.fetch(session_id=session, session_epoch=-1)
        assert (closing.code, closing.session_id) == (ErrorCode.NONE, 0)
        gone = client.fetch(session_id=session, session_epoch=1)
        assert gone.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_session_that_starts_over_gets_another_id(
        self, client: RawClient, topic: Topic
    ) -> None:
        first = _new_session(client, *_both(topic)).session_id
        second = client.fetch(*_both(topic), session_id=first, session_epoch=0)
        assert second.code == ErrorCode.NONE
        assert second.session_id not in {0, first}
        gone = client.fetch(session_id=first, session_epoch=1)
        assert gone.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @pytest.mark.parametrize("versions", [(12, 13), (13, 12)])
    def test_names_and_ids_do_not_mix(
        self, client: RawClient, topic: Topic, versions: tuple[int, int]
    ) -> None:
        before, after = versions
        session = _new_session(client, *_both(topic), version=before).session_id
        answer = client.fetch(session_id=session, session_epoch=1, version=after)
        assert answer.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_error_is_told_until_it_is_gone(self, client: RawClient, topic: Topic) -> None:
        beyond = FetchFrom(topic=topic, offset=99)
        unknown = FetchFrom(topic=topic, partition=7)
        session = _new_session(client, beyond, unknown).session_id
        refusals = {0: ErrorCode.OFFSET_OUT_OF_RANGE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for epoch in (1, 2):
            assert _in_session(client, session, epoch) == refusals

    def test_unknown_topic_id_is_told_until_it_is_forgotten(self, client: RawClient) -> None:
        session = _new_session(client, FetchFrom(topic=NOBODY)).session_id
        assert session > 0
        assert _in_session(client, session, 1) == {0: ErrorCode.UNKNOWN_TOPIC_ID}


class TestListOffsets:
    @pytest.mark.parametrize(
        ("timestamp_ms", "first_version", "offset"),
        [(-1, 1, 12), (-2, 1, 5), (-3, 7, 9), (-4, 8, 5), (-5, 9, -1), (-6, 11, -1), (-7, 12, -1)],
        ids=["latest", "earliest", "max", "earliest local", "tiered", "pending", "nonsense"],
    )
    def test_special_timestamp_is_known_from_its_version_on(
        self,
        broker: Broker,
        client: RawClient,
        topic: Topic,
        *,
        timestamp_ms: int,
        first_version: int,
        offset: int,
    ) -> None:
        delete_records(broker.bootstrap, topic.name, 0, 5)
        for version in range(1, 12):
            code, found, _ = client.list_offsets(topic.name, timestamp_ms, version=version)
            if version < first_version:
                assert (code, found) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            else:
                assert (code, found) == (ErrorCode.NONE, offset)

    def test_time_after_the_last_record_has_no_offset(
        self, client: RawClient, topic: Topic
    ) -> None:
        last_ms = FIRST_TIMESTAMP_MS + 3_000
        assert client.list_offsets(topic.name, last_ms) == (ErrorCode.NONE, 9, last_ms)
        assert client.list_offsets(topic.name, last_ms + 1) == (ErrorCode.NONE, -1, -1)

    @pytest.mark.parametrize(
        ("timestamp_ms", "offset"), [(-1, 0), (-2, 0), (-3, -1), (-4, 0), (0, -1)]
    )
    def test_empty_log_has_ends_and_no_times(
        self, client: RawClient, topic: Topic, timestamp_ms: int, offset: int
    ) -> None:
        found = client.list_offsets(topic.name, timestamp_ms, partition=1)
        assert found == (ErrorCode.NONE, offset, -1)

    @pytest.mark.parametrize("timestamp_ms", [-1, -3, 0])
    def test_unknown_partition_is_refused(
        self, client: RawClient, topic: Topic, timestamp_ms: int
    ) -> None:
        refused = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert client.list_offsets(topic.name, timestamp_ms, partition=9) == refused
        assert client.list_offsets(NOBODY.name, timestamp_ms) == refused

    @pytest.mark.parametrize("timestamp_ms", [-1, -3, 0])
    def test_epoch_of_the_future_is_unknown(
        self, client: RawClient, topic: Topic, timestamp_ms: int
    ) -> None:
        found = client.list_offsets(topic.name, timestamp_ms, leader_epoch=5)
        assert found == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


class TestOffsetForLeaderEpoch:
    @pytest.mark.parametrize(
        ("current", "asked", "expected"),
        [
            (-1, 0, (ErrorCode.NONE, 0, 12)),
            (0, 0, (ErrorCode.NONE, 0, 12)),
            (5, 0, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
            (-1, 5, (ErrorCode.NONE, -1, -1)),
            (-1, -1, (ErrorCode.NONE, -1, -1)),
        ],
    )
    def test_end_of_an_epoch_is_told(
        self,
        client: RawClient,
        topic: Topic,
        *,
        current: int,
        asked: int,
        expected: tuple[int, int, int],
    ) -> None:
        assert _epoch_end(client, topic.name, current=current, asked=asked) == expected

    def test_unknown_topic_is_refused(self, client: RawClient) -> None:
        assert _epoch_end(client, NOBODY.name, current=-1, asked=0) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            -1,
            -1,
        )


class TestMetadata:
    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("n" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_unknown_name_is_refused(self, client: RawClient, name: str, code: ErrorCode) -> None:
        for version in range(FIRST_METADATA_WITH_A_CHOICE, METADATA_VERSION + 1):
            described = client.metadata({"name": name, "topic_id": None}, version=version)
            assert described.error_code == code

    def test_illegal_name_is_not_created(self, client: RawClient) -> None:
        for version in range(METADATA_VERSION + 1):
            asked = {"name": "bad/name", "topic_id": None}
            described = client.metadata(asked, version=version, auto_create=True)
            assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    @pytest.mark.parametrize("version", [12, 13])
    def test_unknown_id_is_refused(self, client: RawClient, version: int) -> None:
        described = client.metadata({"name": None, "topic_id": NOBODY.id}, version=version)
        assert described.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize("version", [12, 13])
    def test_topic_is_found_by_id(self, client: RawClient, topic: Topic, version: int) -> None:
        described = client.metadata({"name": None, "topic_id": topic.id}, version=version)
        assert (described.error_code, described.name) == (ErrorCode.NONE, topic.name)

    @pytest.mark.parametrize("version", [10, 11])
    @pytest.mark.parametrize("has_id", [True, False])
    def test_first_versions_with_ids_do_not_take_them(
        self, client: RawClient, topic: Topic, version: int, has_id: bool
    ) -> None:
        asked = {"name": None, "topic_id": topic.id if has_id else None}
        assert client.metadata(asked, version=version).error_code == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("version", [12, 13])
    def test_topic_without_name_and_id_is_refused(self, client: RawClient, version: int) -> None:
        code = client.metadata({"name": None, "topic_id": None}, version=version).error_code
        # Kafka's is an accident.
        if SUBJECT == "kafka":
            assert code == ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            assert code == ErrorCode.INVALID_REQUEST

    def test_topic_asked_for_twice_is_answered_once(self, client: RawClient, topic: Topic) -> None:
        asked = {"name": topic.name, "topic_id": None}
        values = {
            "topics": [asked, asked],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        (described,) = client.request(ApiKey.METADATA, 13, values).topics
        assert described.name == topic.name

    @pytest.mark.parametrize("version", [1, 4, 9, 13])
    def test_topic_is_created_on_first_use(self, client: RawClient, version: int) -> None:
        """P4."""
        asked = {"name": unused_name(), "topic_id": None}
        first = client.metadata(asked, version=version, auto_create=True)
        # Kafka says so at once and creates meanwhile; tidelog answers when the topic is there.
        expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if SUBJECT == "kafka" else ErrorCode.NONE
        assert first.error_code == expected
        wait_until(
            lambda: (
                client.metadata(asked, version=version, auto_create=True).error_code
                == ErrorCode.NONE
            ),
            within_s=TIMEOUT_S,
            what="the topic is there",
        )


def _append(
    client: RawClient,
    topic: Topic,
    *,
    partition: int = 0,
    timestamp_ms: int = FIRST_TIMESTAMP_MS,
) -> None:
    answer = client.produce(topic, plain_batch(timestamp_ms=timestamp_ms), partition=partition)
    assert answer.code == ErrorCode.NONE


def _both(topic: Topic) -> tuple[FetchFrom, FetchFrom]:
    return FetchFrom(topic=topic), FetchFrom(topic=topic, partition=1)


def _only(answer: FetchAnswer) -> Fetched:
    assert answer.code == ErrorCode.NONE
    (fetched,) = answer.partitions.values()
    return fetched


def _new_session(
    client: RawClient, *wanted: FetchFrom, version: int = FETCH_VERSION
) -> FetchAnswer:
    return client.fetch(*wanted, session_id=0, session_epoch=0, version=version)


def _in_session(
    client: RawClient, session_id: int, epoch: int, *wanted: FetchFrom
) -> dict[int, int]:
    """The codes of the partitions that an incremental fetch is answered with."""
    answer = client.fetch(*wanted, session_id=session_id, session_epoch=epoch)
    assert (answer.code, answer.session_id) == (ErrorCode.NONE, session_id)
    return {partition: fetched.code for (_topic, partition), fetched in answer.partitions.items()}


def _state(fetched: Fetched) -> tuple[int, int, int, int]:
    return fetched[:4]


def _base_offsets(fetched: Fetched) -> list[int]:
    """Of the whole batches; Kafka cuts what follows them anywhere."""
    return [header.base_offset for _position, header in iter_headers(fetched.records)]


def _leader_epoch(client: RawClient, topic: Topic) -> int:
    client.topic(topic.name)
    (partition,) = client.metadata({"name": topic.name, "topic_id": None}).partitions
    return int(partition.leader_epoch)


def _epoch_end(client: RawClient, topic: str, *, current: int, asked: int) -> tuple[int, int, int]:
    """Code, epoch and end offset."""
    partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
    values = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
    (answered,) = client.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values).topics
    (found,) = answered.partitions
    return int(found.error_code), found.leader_epoch, found.end_offset
