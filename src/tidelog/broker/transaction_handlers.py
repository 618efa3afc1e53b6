"""The coordinator of transactions and its handlers, put together."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidelog.base.ids import BrokerId
from tidelog.base.ports import Clock
from tidelog.broker.broker_peers import Connect
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.dispatch import DirectHandler
from tidelog.broker.handlers.add_offsets_to_txn import AddOffsetsToTxnApi
from tidelog.broker.handlers.add_partitions_to_txn import AddPartitionsToTxnApi
from tidelog.broker.handlers.coordinated import Coordinated, CoordinatedHandler
from tidelog.broker.handlers.end_txn import EndTxnApi
from tidelog.broker.handlers.init_producer_id import InitProducerIdHandler
from tidelog.broker.large_requests import LargeRequests
from tidelog.broker.marker_sender import MarkerSender, WriteHere
from tidelog.broker.partitions import Partitions
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.request_tasks import RequestTasks
from tidelog.broker.transaction_shards import TransactionCoordinator, TransactionShards
from tidelog.config.transactions import TransactionsConfig
from tidelog.core.controller.names import TRANSACTION_STATE
from tidelog.wire.api import ApiKey


def transaction_coordinator(
    config: TransactionsConfig,
    *,
    broker_id: BrokerId,
    partitions: Partitions,
    producer_ids: ProducerIds,
    connect: Connect,
    write_here: WriteHere,
    request_timeout_ms: int,
    clock: Clock,
    hash_key: bytes,
    loop: asyncio.AbstractEventLoop,
    tasks: asyncio.TaskGroup,
) -> TransactionCoordinator:
    """Follows the partitions of `__transaction_state`, none of which may have a role yet.

    `connect` makes the connection over which another broker is told about markers, `write_here`
    writes those that are for this one.
    """
    sender = MarkerSender(
        broker_id=broker_id,
        partitions=partitions,
        connect=connect,
        write_here=write_here,
        loop=loop,
        tasks=tasks,
    )
    shards = Coordinators(
        TRANSACTION_STATE,
        TransactionShards(config, producer_ids, sender.send),
        broker_id=broker_id,
        partitions=partitions,
        clock=clock,
        hash_key=hash_key,
        loop=loop,
        tasks=tasks,
        reply_timeout_ms=request_timeout_ms,
        load_bytes=config.transaction_state_log_load_buffer_size,
    )
    partitions.attach_to(TRANSACTION_STATE, shards.attach)
    return TransactionCoordinator(shards, producer_ids, sender, loop=loop, tasks=tasks)


def direct_transaction_handlers(
    transactions: TransactionCoordinator,
    partitions: Partitions,
    tasks: RequestTasks,
    large: LargeRequests,
) -> Mapping[ApiKey, DirectHandler]:
    """The handlers of what producers send; what operators ask is in `admin_handlers.py`."""
    apis: Mapping[ApiKey, Coordinated[Any]] = {
        ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnApi(transactions, partitions),
        ApiKey.ADD_OFFSETS_TO_TXN: AddOffsetsToTxnApi(transactions, partitions),
        ApiKey.END_TXN: EndTxnApi(transactions),
    }
    return {
        ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(transactions, tasks, large),
        **{key: CoordinatedHandler(api, tasks, large) for key, api in apis.items()},
    }
