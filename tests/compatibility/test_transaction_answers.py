"""Partitions and groups answer to transactions with the codes of Kafka (D3, KIP-890).

One story after the other is told to tidelog and to Kafka, in the protocol's own words; what they
answer, and what producers they know afterwards, must be the same. Producer ids are each broker's.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compatibility.kafka_peer import new_broker
from tests.support.batches import plain_batch, transactional_batch
from tests.support.clients import CLIENT_TIMEOUT_S, create_topic
from tests.support.kafka_process import KafkaProcess
from tests.support.kio_codec import Values, milliseconds
from tests.support.raw_client import RawClient
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey

pytestmark = pytest.mark.one_broker

TOPIC = "answers"
GROUP = "group-of-answers"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
RETRIED = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    # With one replica there are enough. A leader says so to a producer whose coordinator, which it
    # has asked, has yet to write down that all markers are written.
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
OLD, VERIFIES, ADDS = 9, 11, 12
"""Versions of Produce: without a code of its own for what may be aborted, with it, and the last."""


class Side:
    """One broker and a client that is a producer, a coordinator and an operator."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(port)
        self.heard: list[object] = []

    def close(self) -> None:
        self._client.__exit__(None, None, None)

    def ask(self, api_key: ApiKey, version: int, values: Values) -> Any:
        return self._client.answer_to(self._client.begin(api_key, version, values))

    def until(self, ask: Callable[[], int]) -> int:
        """What is answered in the end: a coordinator may have something to do before."""
        deadline_s = time.monotonic() + CLIENT_TIMEOUT_S
        while (code := ask()) in RETRIED and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return code

    # -- what a producer does --------------------------------------------------------------------

    def find_coordinators(self) -> None:
        for key, key_type in ((GROUP, 0), ("id", 1)):
            self.until(lambda key=key, kind=key_type: self._find(key, kind))  # type: ignore[misc]

    def _find(self, key: str, key_type: int) -> int:
        values = {"key": key, "key_type": key_type}
        return int(self.ask(ApiKey.FIND_COORDINATOR, 3, values).error_code)

    def init(self, transactional_id: str) -> tuple[int, int]:
        producer = (-1, -1)

        def ask() -> int:
            nonlocal producer
            values = {
                "transactional_id": transactional_id,
                "transaction_timeout": milliseconds(60_000),
                "producer_id": -1,
                "producer_epoch": -1,
            }
            answer = self.ask(ApiKey.INIT_PRODUCER_ID, 4, values)
            producer = answer.producer_id, answer.producer_epoch
            return int(answer.error_code)

        assert self.until(ask) == 0
        return producer

    def add(self, transactional_id: str, producer: tuple[int, int], partition: int) -> None:
        values = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [{"name": TOPIC, "partitions": (partition,)}],
        }

        def ask() -> int:
            answer = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values)
            ((result,),) = (
                one.results_by_partition for one in answer.results_by_topic_v3_and_below
            )
            return int(result.partition_error_code)

        self.note("add", self.until(ask))

    def produce(
        self,
        transactional_id: str | None,
        batch: bytearray,
        *,
        partition: int = 0,
        topic: str = TOPIC,
        version: int = ADDS,
    ) -> None:
        values = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout": milliseconds(10_000),
            "topic_data": [
                {
                    "name": topic,
                    "partition_data": [{"index": partition, "records": bytes(batch)}],
                }
            ],
        }
        base_offset = -1

        def ask() -> int:
            nonlocal base_offset
            answer = self.ask(ApiKey.PRODUCE, version, values)
            ((result,),) = (one.partition_responses for one in answer.responses)
            base_offset = result.base_offset
            return int(result.error_code)

        self.note("produce", self.until(ask), base_offset)

    def commit_offset(
        self, transactional_id: str, producer: tuple[int, int], *, version: int = 5
    ) -> None:
        values = {
            "transactional_id": transactional_id,
            "group_id": GROUP,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 7,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        }

        def ask() -> int:
            answer = self.ask(ApiKey.TXN_OFFSET_COMMIT, version, values)
            ((result,),) = (one.partitions for one in answer.topics)
            return int(result.error_code)

        self.note("commit offset", self.until(ask))

    def end(self, transactional_id: str, producer: tuple[int, int], *, version: int = 4) -> None:
        values = {
            "transactional_id": transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": True,
        }
        self.note(
            "end", self.until(lambda: int(self.ask(ApiKey.END_TXN, version, values).error_code))
        )

    # -- what a coordinator and an operator do ---------------------------------------------------

    def mark(
        self,
        producer: tuple[int, int],
        *,
        partition: int = 0,
        topic: str = TOPIC,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        commit: bool = False,
    ) -> None:
        marker = {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "transaction_result": commit,
            "topics": [{"name": topic, "partition_indexes": (partition,)}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": transaction_version,
        }
        answer = self.ask(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})
        ((topics,),) = ((one.topics for one in answer.markers),)
        codes = [int(result.error_code) for one in topics for result in one.partitions]
        self.note("mark", *codes)

    def describe(self, producer: tuple[int, int], partition: int = 0) -> None:
        values = {"topics": [{"name": TOPIC, "partition_indexes": (partition,)}]}
        answer = self.ask(ApiKey.DESCRIBE_PRODUCERS, 0, values)
        ((result,),) = (one.partitions for one in answer.topics)
        found = [
            (
                one.producer_epoch,
                one.last_sequence,
                one.coordinator_epoch,
                one.current_txn_start_offset,
            )
            for one in result.active_producers
            if one.producer_id == producer[0]
        ]
        self.note("describe", int(result.error_code), *found)

    def until_ended(self, partition: int) -> None:
        """Markers are written after the answer."""

        def is_open() -> int:
            values = {"topics": [{"name": TOPIC, "partition_indexes": (partition,)}]}
            answer = self.ask(ApiKey.DESCRIBE_PRODUCERS, 0, values)
            ((result,),) = (one.partitions for one in answer.topics)
            starts = [one.current_txn_start_offset for one in result.active_producers]
            return ErrorCode.CONCURRENT_TRANSACTIONS if max(starts) >= 0 else ErrorCode.NONE

        assert self.until(is_open) == 0

    def note(self, what: str, *heard: object) -> None:
        self.heard.append((what, *heard))


Pair = tuple[Side, Side]


@pytest.fixture(scope="module")
def pair(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        new_broker(folder / "ours", SETTINGS) as ours,
        KafkaProcess(folder / "theirs", SETTINGS, heap_mib=256) as theirs,
    ):
        for broker in (ours, theirs):
            create_topic(broker.bootstrap, TOPIC, partition_count=len(STORIES), config={})
        sides = Side(ours.port), Side(theirs.port)
        for side in sides:
            side.find_coordinators()
        yield sides
        for side in sides:
            side.close()


# -- stories: each has a partition of its own ----------------------------------------------------


def adding_by_writing(side: Side, partition: int) -> None:
    """Transaction version 2"""
    name = "adding"
    producer, epoch = side.init(name)
    for sequence in (0, 1):
        batch = transactional_batch(sequence, producer=producer, epoch=epoch)
        side.produce(name, batch, partition=partition)
    side.describe((producer, epoch), partition)
    side.produce(name, transactional_batch(5, producer=producer, epoch=epoch), partition=partition)
    side.produce(name, plain_batch(1), partition=partition)
    side.produce(name, transactional_batch(1, producer=producer, epoch=epoch), partition=partition)
    side.end(name, (producer, epoch), version=5)
    late = transactional_batch(2, producer=producer, epoch=epoch)
    side.until_ended(partition)
    side.produce(name, late, partition=partition)
    side.describe((producer, epoch), partition)


def writing_unannounced(side: Side, partition: int) -> None:
    name = "unannounced"
    producer, epoch = side.init(name)
    for version in (OLD, 10, VERIFIES):
        batch = transactional_batch(0, producer=producer, epoch=epoch)
        side.produce(name, batch, partition=partition, version=version)
    side.add(name, (producer, epoch), partition)
    for version in (OLD, VERIFIES):
        batch = transactional_batch(0, producer=producer, epoch=epoch)
        side.produce(name, batch, partition=partition, version=version)
    side.end(name, (producer, epoch))
    side.until_ended(partition)
    batch = transactional_batch(1, producer=producer, epoch=epoch)
    side.produce(name, batch, partition=partition, version=VERIFIES)
    side.describe((producer, epoch), partition)


def unknown_ids(side: Side, partition: int) -> None:
    batch = transactional_batch(0, producer=4_000_000)
    for version in (OLD, VERIFIES, ADDS):
        side.produce("nobody", batch, partition=partition, version=version)
    side.produce(None, batch, partition=partition)
    producer, epoch = side.init("somebody")
    for other in ((producer, epoch + 1), (producer + 1, epoch)):
        batch = transactional_batch(0, producer=other[0], epoch=other[1])
        side.produce("somebody", batch, partition=partition)
    newer = side.init("somebody")
    assert newer == (producer, epoch + 1)
    batch = transactional_batch(0, producer=producer, epoch=epoch)
    for version in (OLD, VERIFIES, ADDS):
        side.produce("somebody", batch, partition=partition, version=version)


def beginning_in_the_middle(side: Side, partition: int) -> None:
    """V4 of `core/transactions/verification.py`"""
    name = "middle"
    producer, epoch = side.init(name)
    batch = transactional_batch(3, producer=producer, epoch=epoch)
    side.produce(name, batch, partition=partition)
    other, epoch = side.init("other middle")
    side.add("other middle", (other, epoch), partition)
    batch = transactional_batch(3, producer=other, epoch=epoch)
    side.produce("other middle", batch, partition=partition, version=VERIFIES)


def markers_of_version_1(side: Side, partition: int) -> None:
    name = "marked"
    producer, epoch = side.init(name)
    batch = transactional_batch(0, producer=producer, epoch=epoch)
    side.produce(name, batch, partition=partition)
    side.mark((producer, epoch), partition=partition, coordinator_epoch=5)
    side.describe((producer, epoch), partition)
    side.mark((producer, epoch), partition=partition, coordinator_epoch=4)
    side.mark((producer, epoch), partition=partition, coordinator_epoch=5)
    side.mark((producer, epoch + 1), partition=partition, coordinator_epoch=5)
    side.mark((producer, epoch), partition=partition, coordinator_epoch=6)
    side.describe((producer, epoch), partition)


def markers_of_version_2(side: Side, partition: int) -> None:
    name = "marked again"
    producer, epoch = side.init(name)
    batch = transactional_batch(0, producer=producer, epoch=epoch)
    side.produce(name, batch, partition=partition)
    for marked in (epoch, epoch + 1, epoch + 1, epoch, epoch + 3):
        side.mark((producer, marked), partition=partition, transaction_version=2)
        side.describe((producer, epoch), partition)


def markers_elsewhere(side: Side, _partition: int) -> None:
    side.mark((4_000_001, 0), topic="absent")
    side.mark((4_000_001, 0), partition=999)


def topics_of_the_broker(side: Side, _partition: int) -> None:
    for topic in ("__consumer_offsets", "__transaction_state"):
        side.produce(None, plain_batch(1), topic=topic)


def offsets_in_transactions(side: Side, _partition: int) -> None:
    name = "offsets"
    producer = side.init(name)
    for version in (3, 4):
        side.commit_offset(name, producer, version=version)
    side.commit_offset("nobody", producer)
    side.commit_offset(name, (producer[0], producer[1] + 1))
    side.commit_offset(name, producer)
    side.commit_offset(name, producer, version=3)


STORIES: list[Callable[[Side, int], None]] = [
    adding_by_writing,
    writing_unannounced,
    unknown_ids,
    beginning_in_the_middle,
    markers_of_version_1,
    markers_of_version_2,
    markers_elsewhere,
    topics_of_the_broker,
    offsets_in_transactions,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: str(story.__name__))
def test_the_answers_are_kafkas(pair: Pair, story: Callable[[Side, int], None]) -> None:
    for side in pair:
        side.heard = []
        story(side, STORIES.index(story))
    ours, theirs = pair
    assert ours.heard == theirs.heard
