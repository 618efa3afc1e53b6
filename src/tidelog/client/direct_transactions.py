"""Requests about transactions, for which confluent-kafka has no call.

Coordinators list and describe transactional ids; leaders know which producers have written to a
partition, and whose transaction is open there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import DescribeProducersResponse, ProducerState
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import TopicData
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.schema.write_txn_markers.v1.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address
from tidelog.client.group_values import PartitionKey
from tidelog.client.transaction_values import (
    PartitionProducer,
    TransactionDescription,
    TransactionListing,
)
from tidelog.client.values import BrokerNode


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """kio's class of that name, with a start that may be -1: kio reads dates, and that is none."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(65)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    transactional_id: TransactionalId = field(metadata={"kafka_type": "string"})
    transaction_state: str = field(metadata={"kafka_type": "string"})
    transaction_timeout: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    transaction_start_time: i64 = field(metadata={"kafka_type": "int64"})
    producer_id: ProducerId = field(metadata={"kafka_type": "int64"})
    producer_epoch: i16 = field(metadata={"kafka_type": "int16"})
    topics: tuple[TopicData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse:
    """kio's class of that name, with the states above."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(65)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    transaction_states: tuple[TransactionState, ...]


def list_transactions(
    broker: BrokerNode, *, states: Sequence[str], producer_ids: Sequence[int], timeout_s: float
) -> list[TransactionListing]:
    """Those that `broker` coordinates; of any state and any producer where none is named."""
    request = ListTransactionsRequest(
        state_filters=tuple(states), producer_id_filters=tuple(map(ProducerId, producer_ids))
    )
    address = Address(broker.host, broker.port)
    answer = ask(address, request, ListTransactionsResponse, timeout_s=timeout_s)
    require_success(answer.error_code, None)
    return [
        TransactionListing(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            state=each.transaction_state,
            coordinator_id=broker.id,
        )
        for each in answer.transaction_states
    ]


def describe_transaction(
    coordinator: BrokerNode, transactional_id: str, *, timeout_s: float
) -> TransactionDescription:
    """What `coordinator` knows of a transactional id; RequestFailed if it knows none."""
    request = DescribeTransactionsRequest(transactional_ids=(TransactionalId(transactional_id),))
    address = Address(coordinator.host, coordinator.port)
    answer = ask(address, request, DescribeTransactionsResponse, timeout_s=timeout_s)
    (state,) = answer.transaction_states
    require_success(state.error_code, None)
    return _description(state, coordinator.id)


def describe_producers(
    leader: Address, topic: str, partitions: Sequence[int], *, timeout_s: float
) -> list[PartitionProducer]:
    """The producers that `leader` remembers in these partitions, all of which it leads."""
    request = DescribeProducersRequest(
        topics=(TopicRequest(name=TopicName(topic), partition_indexes=tuple(map(i32, partitions))),)
    )
    answer = ask(leader, request, DescribeProducersResponse, timeout_s=timeout_s)
    found = []
    for one in answer.topics:
        for partition in one.partitions:
            require_success(partition.error_code, partition.error_message)
            key = PartitionKey(one.name, partition.partition_index)
            found += [_producer(key, state) for state in partition.active_producers]
    return found


def abort(leader: Address, producer: PartitionProducer, *, timeout_s: float) -> None:
    """Write the marker that aborts this producer's open transaction in this partition."""
    marker = WritableTxnMarker(
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=i16(producer.producer_epoch),
        transaction_result=False,
        topics=(
            WritableTxnMarkerTopic(
                name=TopicName(producer.key.topic),
                partition_indexes=(i32(producer.key.partition),),
            ),
        ),
        # A transaction that began and never ended knows no coordinator; 0 is below all of them.
        coordinator_epoch=i32(max(producer.coordinator_epoch or 0, 0)),
    )
    request = WriteTxnMarkersRequest(markers=(marker,))
    answer = ask(leader, request, WriteTxnMarkersResponse, timeout_s=timeout_s)
    for result in answer.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                require_success(partition.error_code, None)


def _description(state: TransactionState, coordinator_id: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=state.transactional_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        state=state.transaction_state,
        timeout_ms=round(state.transaction_timeout.total_seconds() * 1_000),
        started_ms=_or_none(state.transaction_start_time) if state.topics else None,
        coordinator_id=coordinator_id,
        partitions=tuple(
            PartitionKey(topic.topic, number)
            for topic in state.topics
            for number in topic.partitions
        ),
    )


def _producer(key: PartitionKey, state: ProducerState) -> PartitionProducer:
    return PartitionProducer(
        key=key,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=_or_none(state.last_sequence),
        last_timestamp_ms=_or_none(state.last_timestamp),
        coordinator_epoch=_or_none(state.coordinator_epoch),
        open_since=_or_none(state.current_txn_start_offset),
    )


def _or_none(number: int) -> int | None:
    """Kafka's -1 is nothing."""
    return number if number >= 0 else None
