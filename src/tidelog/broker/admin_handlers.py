"""The handlers of the cold APIs, all at once.

Importing this module imports the message library, which takes longer than the rest of a broker's
start. Only `node.py` does so, at the first request that needs one or some time after start.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import ColdHandler, RequestContext
from tidelog.broker.forwarding import Forwarding
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.alter_configs import AlterConfigsHandler
from tidelog.broker.handlers.alter_partition_reassignments import (
    AlterPartitionReassignmentsHandler,
)
from tidelog.broker.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from tidelog.broker.handlers.consumer_group_describe import ConsumerGroupDescribeHandler
from tidelog.broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from tidelog.broker.handlers.create_partitions import CreatePartitionsHandler
from tidelog.broker.handlers.create_topics import CreateTopicsHandler
from tidelog.broker.handlers.delete_groups import DeleteGroupsHandler
from tidelog.broker.handlers.delete_records import DeleteRecordsHandler
from tidelog.broker.handlers.delete_topics import DeleteTopicsHandler
from tidelog.broker.handlers.describe_cluster import DescribeClusterHandler
from tidelog.broker.handlers.describe_configs import DescribeConfigsHandler
from tidelog.broker.handlers.describe_groups import DescribeGroupsHandler
from tidelog.broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from tidelog.broker.handlers.describe_producers import DescribeProducersHandler
from tidelog.broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from tidelog.broker.handlers.describe_transactions import DescribeTransactionsHandler
from tidelog.broker.handlers.elect_leaders import ElectLeadersHandler
from tidelog.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from tidelog.broker.handlers.join_group import JoinGroupHandler
from tidelog.broker.handlers.list_config_resources import ListConfigResourcesHandler
from tidelog.broker.handlers.list_groups import ListGroupsHandler
from tidelog.broker.handlers.list_partition_reassignments import (
    ListPartitionReassignmentsHandler,
)
from tidelog.broker.handlers.list_transactions import ListTransactionsHandler
from tidelog.broker.handlers.offset_delete import OffsetDeleteHandler
from tidelog.broker.handlers.sync_group import SyncGroupHandler
from tidelog.broker.handlers.update_features import UpdateFeaturesHandler
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.loggers import Loggers
from tidelog.broker.partitions import Partitions
from tidelog.broker.replicas import Replicas
from tidelog.broker.transaction_shards import TransactionCoordinator
from tidelog.wire.api import ApiKey


def admin_handlers(
    *,
    requests: AdminRequests,
    replicas: Replicas,
    partitions: Partitions,
    log_dirs: Sequence[LogDirRunner],
    delivered: Callable[[], Awaitable[None]],
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    forwarding: Forwarding | None,
) -> Mapping[ApiKey, ColdHandler]:
    """The handler of every API that administrates, and of what coordinators are seldom asked.

    `delivered` returns once the brokers know of what the controller has decided.
    """
    replication = replicas.config.replication

    loggers = Loggers(replicas.config.broker_id)

    def told(handler: object) -> ColdHandler:
        return _Told(cast(ColdHandler, handler), delivered)

    handlers = {
        ApiKey.CREATE_TOPICS: CreateTopicsHandler(
            controller=requests,
            broker_config=lambda: replicas.config,
            partitions_open=delivered,
        ),
        ApiKey.DELETE_TOPICS: told(DeleteTopicsHandler(controller=requests)),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(
            controller=requests, partitions_open=delivered
        ),
        ApiKey.ELECT_LEADERS: ElectLeadersHandler(controller=requests, delivered=delivered),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: told(
            AlterPartitionReassignmentsHandler(controller=requests)
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsHandler(controller=requests),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(
            partitions=partitions, broker_config=lambda: replicas.config, loggers=loggers
        ),
        ApiKey.ALTER_CONFIGS: told(AlterConfigsHandler(controller=requests)),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: told(
            IncrementalAlterConfigsHandler(
                controller=requests, loggers=loggers, forwarding=forwarding
            )
        ),
        ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(partitions=partitions),
        ApiKey.UPDATE_FEATURES: UpdateFeaturesHandler(),
        ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesHandler(partitions=partitions),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsHandler(
            partitions=partitions,
            partition_limit=replication.max_request_partition_size_limit,
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirsHandler(moves=replicas.moves),
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsHandler(log_dirs=log_dirs),
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(partitions=partitions),
        ApiKey.DESCRIBE_PRODUCERS: DescribeProducersHandler(partitions=partitions),
    }
    handlers |= {
        ApiKey.JOIN_GROUP: JoinGroupHandler(groups=groups),
        ApiKey.SYNC_GROUP: SyncGroupHandler(groups=groups),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatHandler(
            groups=groups, config=replicas.config.consumer_groups
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeHandler(
            groups=groups, config=replicas.config.consumer_groups
        ),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(groups=groups),
        ApiKey.LIST_GROUPS: ListGroupsHandler(groups=groups),
        ApiKey.DELETE_GROUPS: DeleteGroupsHandler(groups=groups),
        ApiKey.OFFSET_DELETE: OffsetDeleteHandler(groups=groups, partitions=partitions),
        ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactionsHandler(transactions=transactions),
        ApiKey.LIST_TRANSACTIONS: ListTransactionsHandler(transactions=transactions),
    }
    # Each takes its own API's message, and the dispatcher hands it no other.
    return cast(Mapping[ApiKey, ColdHandler], handlers)


@dataclass(frozen=True, slots=True)
class _Told:
    """Answers when the brokers have been told: whoever asks another one next finds it so."""

    handler: ColdHandler
    delivered: Callable[[], Awaitable[None]]

    async def handle(self, request: object, context: RequestContext) -> object:
        response = await self.handler.handle(request, context)
        await self.delivered()
        return response
