"""A broker serves its clients while it compacts a large log (S5).

A log of 100 MB takes seconds; whoever sends one record at a time meanwhile must not wait for it
(C8 of docs/internals/compaction.md).
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.conftest import StartBroker
from tests.support.batches import plain_batch
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic
from tests.support.raw_client import RawClient
from tests.support.server_process import wait_until
from tidelog.base.errors import ErrorCode
from tidelog.client.admin import Admin
from tidelog.client.values import TopicResource
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch

LARGE, SMALL = "large", "small"
SEGMENT_BYTES = 100_000_000
BATCH_RECORDS = 20_000
SENT_MIN = 20
UNCOMPACTED = {"segment.bytes": str(SEGMENT_BYTES)}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
TOOK = re.compile(r"log compacted.*took_ms\D+(\d+)")


def fill(broker: BrokerProcess) -> None:
    """A whole segment, and the beginning of the next.

    The same small records over and over: most of the work is in their number.
    """
    now_ms = int(time.time() * 1_000)
    records = [
        Record(number, now_ms, b"key-%d" % number, b"value", ()) for number in range(BATCH_RECORDS)
    ]
    batch = encode_plain_batch(records, Codec.NONE)
    with RawClient(broker.port) as client:
        topic = client.topic(LARGE)
        for _ in range(SEGMENT_BYTES // len(batch) + 1):
            assert client.produce(topic, batch, acks=1).code == ErrorCode.NONE


@contextmanager
def sending(broker: BrokerProcess) -> Iterator[list[float]]:
    """How long each of the records took that are sent one at a time, in seconds."""
    waits_s: list[float] = []
    stopping = threading.Event()

    def send() -> None:
        with RawClient(broker.port) as client:
            topic = client.topic(SMALL)
            while not stopping.is_set():
                began_s = time.monotonic()
                assert client.produce(topic, plain_batch(1), acks=1).code == ErrorCode.NONE
                waits_s.append(time.monotonic() - began_s)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield waits_s
    finally:
        stopping.set()
        thread.join()


def took(broker: BrokerProcess) -> list[int]:
    """How many milliseconds compactions have taken."""
    return [int(number) for number in TOOK.findall(broker.log_text())]


def test_nobody_waits_for_a_compaction(start_broker: StartBroker) -> None:
    broker = start_broker({"log.cleaner.backoff.ms": "20"})
    create_topic(broker.bootstrap, LARGE, partition_count=1, config=UNCOMPACTED)
    create_topic(broker.bootstrap, SMALL, partition_count=1, config={})
    fill(broker)
    with sending(broker) as waits_s:
        wait_until(lambda: len(waits_s) > SENT_MIN, within_s=30, what="records are sent")
        before = len(waits_s)
        with Admin(broker.bootstrap) as admin:
            admin.alter_configs(TopicResource(LARGE), set_values=COMPACTED, deleted=())
        wait_until(lambda: bool(took(broker)), within_s=120, what="it is compacted")
    (took_ms, *_) = took(broker)
    meanwhile_s = waits_s[before:]
    assert len(meanwhile_s) > SENT_MIN
    # Done by the event loop itself, one of them would have waited for all of it.
    assert max(meanwhile_s) < took_ms / 1_000 / 2
