"""The topics in which coordinators keep what they know, made when somebody first needs them (P4).

    __consumer_offsets      groups: their members, assignments and offsets
    __transaction_state     transactional ids

Ordinary topics: replicated, compacted, readable by Kafka's own tools. Their settings are what a
Kafka broker gives them; how many partitions they have does not change any more once they exist
(`core/controller/topics.py`), because it decides which broker looks after a key.
"""

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.topic_creation import TopicCreation
from tidelog.config.broker import BrokerConfig
from tidelog.core.controller.names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from tidelog.core.controller.requests import NewTopic

_REPLICATION_FACTORS = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
}


def topic_template(config: BrokerConfig, name: str) -> NewTopic:
    """How a topic that is used first is to be made, internal or not."""
    return internal_topic(name, config) if name in INTERNAL_TOPICS else NewTopic(name=name)


def internal_topic(name: str, config: BrokerConfig) -> NewTopic:
    """How one of INTERNAL_TOPICS is to be made."""
    if name == CONSUMER_OFFSETS:
        groups = config.groups
        return NewTopic(
            name=name,
            partition_count=groups.offsets_topic_num_partitions,
            replication_factor=groups.offsets_topic_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(groups.offsets_topic_segment_bytes)),
            ),
        )
    assert name == TRANSACTION_STATE
    transactions = config.transactions
    return NewTopic(
        name=name,
        partition_count=transactions.transaction_state_log_num_partitions,
        replication_factor=transactions.transaction_state_log_replication_factor,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(transactions.transaction_state_log_min_isr)),
            ("segment.bytes", str(transactions.transaction_state_log_segment_bytes)),
            ("unclean.leader.election.enable", "false"),
        ),
    )


class InternalTopics:
    """Makes them, each once however many clients need it."""

    def __init__(self, creation: TopicCreation, config: BrokerConfig) -> None:
        self._creation = creation
        self._config = config

    def is_under_way(self, name: str) -> bool:
        """Whether `name` is being created, and brokers may not know of it yet."""
        return self._creation.is_under_way(name)

    async def create(self, name: str) -> None:
        """Return once `name` is there. Raises RequestRefused(COORDINATOR_NOT_AVAILABLE)."""
        refused = (await self._creation.create_missing([name])).get(name)
        if refused is None:
            return
        reason = refused.name
        if refused is ErrorCode.INVALID_REPLICATION_FACTOR:
            wanted = internal_topic(name, self._config).replication_factor
            reason = f"{_REPLICATION_FACTORS[name]} is {wanted}, and fewer brokers are alive"
        raise RequestRefused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created: {reason}"
        )
