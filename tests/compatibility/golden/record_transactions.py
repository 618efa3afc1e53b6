"""Ask a real Kafka's transaction coordinator what our unit tests compare with, and write it down.

    python -m tests.compatibility.golden.record_transactions FOLDER

Starts Apache Kafka in FOLDER, takes the steps of tests/support/transaction_steps.py and writes the
answers, and what `__transaction_state` says afterwards, next to this file.
"""

import base64
import json
import struct
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, TopicPartition
from kio.schema.add_partitions_to_txn.v3 import request as add_v3
from kio.schema.add_partitions_to_txn.v3 import response as add_v3_response
from kio.schema.add_partitions_to_txn.v5 import request as add_v5
from kio.schema.add_partitions_to_txn.v5 import response as add_v5_response
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
from kio.schema.end_txn.v4 import request as end_v4
from kio.schema.end_txn.v4 import response as end_v4_response
from kio.schema.end_txn.v5 import request as end_v5
from kio.schema.end_txn.v5 import response as end_v5_response
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64
from kio.static.protocol import Payload

from tests.support.clients import create_topic
from tests.support.kafka_process import KafkaProcess
from tests.support.message_client import MessageClient
from tests.support.transaction_steps import (
    LAST_EPOCH,
    NOBODY,
    PARTITION_COUNT,
    STEPS,
    TOPIC,
    Add,
    End,
    Init,
    Settle,
    Step,
    UseUp,
)

_FILE = Path(__file__).parent / "kafka-4.3.0-transactions.json"
_LOG = "__transaction_state"
_SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
_TOPIC_NAME = TopicName(TOPIC)
_SETTLED = ("Empty", "CompleteCommit", "CompleteAbort")
_EPOCH = struct.Struct(">h")
_COMING_BACK = {14, 15, 16}
"""The coordinator is not ready yet."""


R = TypeVar("R", bound=Payload)


class Recorder:
    """Takes steps, and gives producer ids names."""

    def __init__(self, client: MessageClient) -> None:
        self._client = client
        self._names: dict[int, str] = {}

    @property
    def names(self) -> dict[int, str]:
        return self._names

    def take(self, step: Step) -> list[object] | None:
        match step:
            case Init():
                return self._init(step)
            case Add():
                return self._add(step)
            case End():
                return self._end(step)
            case Settle():
                self._settle(step.transactional_id)
            case UseUp():
                self._use_up(step)
        return None

    def _init(self, step: Init) -> list[object]:
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(step.transactional_id),
            transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=step.timeout_ms)),
            producer_id=self._id(step.producer),
            producer_epoch=i16(step.epoch),
        )
        answer = self._ask(request, InitProducerIdResponse)
        while int(answer.error_code) in _COMING_BACK:
            time.sleep(0.1)
            answer = self._ask(request, InitProducerIdResponse)
        return [int(answer.error_code), self._name(answer.producer_id), int(answer.producer_epoch)]

    def _add(self, step: Add) -> list[object]:
        if step.version == 0 and not step.is_verification:
            return self._add_classic(step)
        topic = add_v5.AddPartitionsToTxnTopic(name=_TOPIC_NAME, partitions=_partitions(step))
        transaction = add_v5.AddPartitionsToTxnTransaction(
            transactional_id=TransactionalId(step.transactional_id),
            producer_id=self._id(step.producer),
            producer_epoch=i16(step.epoch),
            verify_only=step.is_verification,
            topics=(topic,),
        )
        request = add_v5.AddPartitionsToTxnRequest(transactions=(transaction,))
        answer = self._ask(request, add_v5_response.AddPartitionsToTxnResponse)
        (result,) = answer.results_by_transaction
        (answered,) = result.topic_results
        return _codes(
            (each.partition_index, each.partition_error_code)
            for each in answered.results_by_partition
        )

    def _add_classic(self, step: Add) -> list[object]:
        topic = add_v3.AddPartitionsToTxnTopic(name=_TOPIC_NAME, partitions=_partitions(step))
        request = add_v3.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(step.transactional_id),
            v3_and_below_producer_id=self._id(step.producer),
            v3_and_below_producer_epoch=i16(step.epoch),
            v3_and_below_topics=(topic,),
        )
        answer = self._ask(request, add_v3_response.AddPartitionsToTxnResponse)
        (answered,) = answer.results_by_topic_v3_and_below
        return _codes(
            (each.partition_index, each.partition_error_code)
            for each in answered.results_by_partition
        )

    def _end(self, step: End) -> list[object]:
        if not step.version:
            return self._end_classic(step)
        request = end_v5.EndTxnRequest(
            transactional_id=TransactionalId(step.transactional_id),
            producer_id=self._id(step.producer),
            producer_epoch=i16(step.epoch),
            committed=step.is_commit,
        )
        answer = self._ask(request, end_v5_response.EndTxnResponse)
        return [int(answer.error_code), self._name(answer.producer_id), int(answer.producer_epoch)]

    def _end_classic(self, step: End) -> list[object]:
        request = end_v4.EndTxnRequest(
            transactional_id=TransactionalId(step.transactional_id),
            producer_id=self._id(step.producer),
            producer_epoch=i16(step.epoch),
            committed=step.is_commit,
        )
        answer = self._ask(request, end_v4_response.EndTxnResponse)
        return [int(answer.error_code), NOBODY, -1]

    def _settle(self, transactional_id: str) -> None:
        request = DescribeTransactionsRequest(
            transactional_ids=(TransactionalId(transactional_id),)
        )
        while True:
            answer = self._ask(request, DescribeTransactionsResponse)
            if answer.transaction_states[0].transaction_state in _SETTLED:
                return
            time.sleep(0.02)

    def _use_up(self, step: UseUp) -> None:
        epoch = step.epoch
        while epoch < LAST_EPOCH:
            abort = End(step.transactional_id, step.producer, epoch, is_commit=False)
            code, _producer, after = self._end(abort)
            if code == 0:
                assert isinstance(after, int)
                epoch = after
        self._settle(step.transactional_id)

    def _ask(self, request: Payload, response_class: type[R]) -> R:
        answer = self._client.ask(request)
        assert isinstance(answer, response_class)
        return answer

    def _id(self, name: str) -> ProducerId:
        known = (known for known, given in self._names.items() if given == name)
        return ProducerId(i64(next(known, -1)))

    def _name(self, producer_id: int) -> str:
        if producer_id < 0:
            return NOBODY
        return self._names.setdefault(int(producer_id), f"p{len(self._names)}")


def _partitions(step: Add) -> tuple[i32, ...]:
    return tuple(i32(partition) for partition in step.partitions)


def _codes(answered: Iterable[tuple[int, int]]) -> list[object]:
    """In the order of the partitions."""
    return [int(code) for _partition, code in sorted(answered)]


def _records(bootstrap: str) -> list[list[str]]:
    """All but those of the thousands of epochs that are used up one after the other."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "recorder"})
    consumer.assign([TopicPartition(_LOG, 0, 0)])
    _low, high = consumer.get_watermark_offsets(TopicPartition(_LOG, 0), timeout=10)
    records: list[list[str]] = []
    position = 0
    while position < high:
        for message in consumer.consume(1_000, timeout=1):
            assert message.error() is None
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert key is not None
            assert value is not None
            position = offset + 1
            if not key.endswith(b"spent") or not 1 < _EPOCH.unpack_from(value, 10)[0] < LAST_EPOCH:
                records.append([_text(key), _text(value)])
    consumer.close()
    return records


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def main(folder: Path) -> None:
    with KafkaProcess(folder, _SETTINGS) as kafka:
        create_topic(kafka.bootstrap, TOPIC, partition_count=PARTITION_COUNT, config={})
        host, port = kafka.bootstrap.split(":")
        with MessageClient(host, int(port)) as client:
            _await_coordinator(client)
            recorder = Recorder(client)
            answers = [recorder.take(step) for step in STEPS]
        records = _records(kafka.bootstrap)
    recorded = {"answers": answers, "ids": recorder.names, "records": records}
    _FILE.write_text(json.dumps(recorded) + "\n", "utf-8")


def _await_coordinator(client: MessageClient) -> None:
    """The topic of transactions is created when somebody looks for its coordinator."""
    request = FindCoordinatorRequest(key="new", key_type=i8(1))
    while True:
        answer = client.ask(request)
        assert isinstance(answer, FindCoordinatorResponse)
        if answer.error_code == 0:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
