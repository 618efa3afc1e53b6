"""The producer for applications, sync and async, against a real broker (P2)."""

import threading
import time

import pytest

from tests.support.server_process import wait_until
from tidelog.base.errors import ConfigError
from tidelog.client import Producer
from tidelog.client.admin import Admin
from tidelog.client.application_producer import DeliveryFailed, Dropped, Failed, Queued, Stored
from tidelog.client.errors import ClientError, ClusterUnreachable, RequestFailed
from tidelog.testing import Broker

LONG_MS = 60_000


def test_sync_returns_when_the_record_is_stored(tidelog_broker: Broker, tidelog_topic: str) -> None:
    with Producer(tidelog_broker.bootstrap, producer_type="sync") as producer:
        for offset in range(5):
            result = producer.send(
                tidelog_topic, b"value", key=b"key", headers=[("a", b"1"), ("b", None)]
            )
            assert result == Stored(topic=tidelog_topic, partition=0, offset=offset)
            assert tidelog_broker.end_offsets(tidelog_topic)[0] == offset + 1
        assert producer.acknowledged == 5


def test_sync_raises_what_the_broker_refused(tidelog_broker: Broker, tidelog_topic: str) -> None:
    with Admin(tidelog_broker.bootstrap) as admin:
        admin.create_topic("small", configs={"max.message.bytes": "1000"})
    with Producer(tidelog_broker.bootstrap) as producer:
        with pytest.raises(RequestFailed) as refusal:
            producer.send("small", b"x" * 5_000)
        assert refusal.value.code_name == "MSG_SIZE_TOO_LARGE"
        assert (producer.queued, producer.failed, producer.acknowledged) == (1, 1, 0)
        assert isinstance(producer.send(tidelog_topic, b"goes on"), Stored)


def test_sync_refuses_a_record_that_its_queue_has_no_room_for(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    small = {"queue.buffering.max.kbytes": 1}
    with Producer(tidelog_broker.bootstrap, settings=small) as producer:
        with pytest.raises(RequestFailed, match=r"queue\.buffering\.max\.kbytes"):
            producer.send(tidelog_topic, b"x" * 5_000)
        assert isinstance(producer.send(tidelog_topic, b"goes on"), Stored)


def test_sync_says_so_when_nobody_answers_in_time(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    with Producer(tidelog_broker.bootstrap, delivery_timeout_ms=3_000) as producer:
        producer.send(tidelog_topic, b"one")
        tidelog_broker.pause()
        with pytest.raises(
            RequestFailed, match=r"not stored within delivery\.timeout\.ms \(3000\)"
        ):
            producer.send(tidelog_topic, b"two")
        tidelog_broker.resume()
        assert producer.failed == 1


def test_sync_with_acks_0_knows_no_offset(tidelog_broker: Broker, tidelog_topic: str) -> None:
    with Producer(tidelog_broker.bootstrap, acks=0) as producer:
        assert producer.send(tidelog_topic, b"x") == Stored(
            topic=tidelog_topic, partition=0, offset=None
        )


def test_sync_is_one_at_a_time_for_all_threads(tidelog_broker: Broker, tidelog_topic: str) -> None:
    offsets: list[int | None] = []

    def send_some() -> None:
        for _ in range(20):
            result = producer.send(tidelog_topic, b"x")
            assert isinstance(result, Stored)
            offsets.append(result.offset)

    with Producer(tidelog_broker.bootstrap) as producer:
        threads = [threading.Thread(target=send_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(offsets, key=lambda offset: offset or 0) == list(range(80))


def test_async_waits_for_others_until_the_batch_is_full(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    with Producer(
        tidelog_broker.bootstrap,
        producer_type="async",
        queue_buffering_max_ms=LONG_MS,
        batch_num_messages=5,
    ) as producer:
        # The first record makes librdkafka ask where the topic is; from then on only the batch
        # or the time can be what a record waits for.
        producer.send(tidelog_topic, b"first")
        producer.flush()
        for _ in range(4):
            assert producer.send(tidelog_topic, b"x") == Queued()
        assert tidelog_broker.end_offsets(tidelog_topic)[0] == 1
        producer.send(tidelog_topic, b"the fifth")
        wait_until(
            lambda: tidelog_broker.end_offsets(tidelog_topic)[0] == 6,
            within_s=10,
            what="a full batch is sent",
        )


def test_async_sends_when_the_time_is_over(tidelog_broker: Broker, tidelog_topic: str) -> None:
    with Producer(
        tidelog_broker.bootstrap, producer_type="async", queue_buffering_max_ms=300
    ) as producer:
        producer.send(tidelog_topic, b"x")
        wait_until(
            lambda: tidelog_broker.end_offsets(tidelog_topic)[0] == 1,
            within_s=10,
            what="queue.buffering.max.ms is over",
        )


def test_a_full_queue_with_timeout_0_drops_and_counts(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    with Producer(
        tidelog_broker.bootstrap,
        producer_type="async",
        queue_buffering_max_messages=10,
        queue_enqueue_timeout_ms=0,
    ) as producer:
        tidelog_broker.pause()
        results = [producer.send(tidelog_topic, b"x") for _ in range(25)]
        assert results == [Queued()] * 10 + [Dropped()] * 15
        assert (producer.queued, producer.dropped, producer.in_flight) == (10, 15, 10)
        tidelog_broker.resume()
    assert producer.acknowledged == 10
    assert tidelog_broker.end_offsets(tidelog_topic)[0] == 10


def test_a_full_queue_with_timeout_minus_1_blocks(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    with Producer(
        tidelog_broker.bootstrap,
        producer_type="async",
        queue_buffering_max_ms=10,
        queue_buffering_max_messages=10,
        queue_enqueue_timeout_ms=-1,
    ) as producer:
        tidelog_broker.pause()
        sender = threading.Thread(
            target=lambda: [producer.send(tidelog_topic, b"x") for _ in range(25)]
        )
        sender.start()
        wait_until(lambda: producer.queued == 10, within_s=10, what="the queue is full")
        sender.join(0.3)
        assert sender.is_alive(), "it must wait while the queue is full"
        assert producer.queued == 10
        tidelog_broker.resume()
        sender.join(30)
        assert not sender.is_alive()
    assert (producer.queued, producer.dropped, tidelog_broker.end_offsets(tidelog_topic)[0]) == (
        25,
        0,
        25,
    )


def test_a_full_queue_with_a_timeout_blocks_that_long_then_drops(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    with Producer(
        tidelog_broker.bootstrap,
        producer_type="async",
        queue_buffering_max_messages=3,
        queue_enqueue_timeout_ms=250,
    ) as producer:
        tidelog_broker.pause()
        for _ in range(3):
            assert producer.send(tidelog_topic, b"x") == Queued()
        began_at = time.monotonic()
        assert producer.send(tidelog_topic, b"too many") == Dropped()
        assert 0.25 <= time.monotonic() - began_at < 5
        tidelog_broker.resume()
    assert (producer.dropped, tidelog_broker.end_offsets(tidelog_topic)[0]) == (1, 3)


def test_async_tells_of_each_record(tidelog_broker: Broker, tidelog_topic: str) -> None:
    told: list[Stored | Failed] = []
    with Producer(
        tidelog_broker.bootstrap, producer_type="async", on_delivery=told.append
    ) as producer:
        for _ in range(300):
            producer.send(tidelog_topic, b"x")
    assert told == [
        Stored(topic=tidelog_topic, partition=0, offset=offset) for offset in range(300)
    ]


def test_async_tells_of_a_failed_record_with_its_content(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    told: list[Stored | Failed] = []
    with Producer(
        tidelog_broker.bootstrap,
        producer_type="async",
        on_delivery=told.append,
        queue_buffering_max_ms=10,
        delivery_timeout_ms=500,
    ) as producer:
        tidelog_broker.pause()
        producer.send(tidelog_topic, b"value", key=b"key", partition=0)
        producer.flush()
        tidelog_broker.resume()
    (failed,) = told
    assert isinstance(failed, Failed)
    assert (failed.topic, failed.key, failed.value) == (tidelog_topic, b"key", b"value")
    assert "delivery.timeout.ms (500)" in str(failed.error)


def test_async_without_anybody_to_tell_raises_in_the_end(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    producer = Producer(
        tidelog_broker.bootstrap,
        producer_type="async",
        queue_buffering_max_ms=10,
        delivery_timeout_ms=500,
    )
    tidelog_broker.pause()
    producer.send(tidelog_topic, b"one")
    producer.send(tidelog_topic, b"two")
    with pytest.raises(DeliveryFailed, match="2 records were not stored; the first because"):
        producer.close()
    tidelog_broker.resume()
    assert producer.failed == 2
    producer.close()


def test_an_error_in_the_block_is_not_hidden_and_nothing_queued_is_lost(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    sender = Producer(
        tidelog_broker.bootstrap, producer_type="async", queue_buffering_max_ms=LONG_MS
    )
    sender.send(tidelog_topic, b"x")
    with pytest.raises(ZeroDivisionError), sender:
        raise ZeroDivisionError
    assert tidelog_broker.end_offsets(tidelog_topic)[0] == 1
    with pytest.raises(ClientError, match="closed"):
        sender.send(tidelog_topic, b"x")


def test_a_misspelt_setting_is_refused_by_name(tidelog_broker: Broker) -> None:
    with pytest.raises(ConfigError, match=r"lingr\.ms"):
        Producer(tidelog_broker.bootstrap, settings={"lingr.ms": 1})


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(ClusterUnreachable, match=r"no broker answers at 127\.0\.0\.1:1 "):
        Producer("127.0.0.1:1")
