"""Topics, settings and the cluster itself, over confluent-kafka's AdminClient.

Every call blocks until the cluster has answered and raises `ClientError` if the answer is no.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self, TypeVar, assert_never

from confluent_kafka import OFFSET_INVALID, IsolationLevel, TopicCollection, TopicPartition

# confluent-kafka exports these without saying so.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    TopicDescription as KafkaTopicDescription,
)

from tidelog.base.errors import ConfigError
from tidelog.client.bootstrap import Address, require_reachable
from tidelog.client.errors import ClusterUnreachable, RequestFailed
from tidelog.client.names import require_group_id, require_topic_name
from tidelog.client.translation import translated
from tidelog.client.values import (
    CONFIG_SOURCES,
    BrokerNode,
    BrokerResource,
    ClusterDefaults,
    ClusterDescription,
    ConfigValue,
    GroupResource,
    LogDirDescription,
    LoggerResource,
    OffsetBounds,
    PartitionDescription,
    Resource,
    TopicDescription,
    TopicResource,
)

BROKER_DEFAULT: Final = -1
_NO_LEADER: Final = frozenset({"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "_NOENT"})
_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"

T = TypeVar("T")


class Admin:
    """A connection to a cluster for asking about it and changing it."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0) -> None:
        """Raises ClusterUnreachable at once if nobody listens at `bootstrap`."""
        require_reachable(bootstrap, timeout_s=timeout_s)
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        # log_level 0: what goes wrong is raised here, not printed by librdkafka's threads.
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.__exit__(kind, error, trace)

    def describe_cluster(self) -> ClusterDescription:
        """Who is there, and who is the controller."""
        answer = self._wait(self._client.describe_cluster(request_timeout=self._timeout_s))
        brokers = [
            BrokerNode(id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in answer.nodes
        ]
        controller = answer.controller
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=None if controller is None or controller.id < 0 else controller.id,
            brokers=tuple(sorted(brokers, key=lambda broker: broker.id)),
        )

    def topic_names(self) -> list[str]:
        """All topics, sorted. Asking for all creates none, unlike asking for one by name."""
        with translated(self._bootstrap):
            return sorted(self._client.list_topics(timeout=self._timeout_s).topics)

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """The topics of these names, in this order; RequestFailed if one does not exist."""
        if not names:
            return []
        for name in names:
            require_topic_name(name)
        answers = self._client.describe_topics(
            TopicCollection(list(names)), request_timeout=self._timeout_s
        )
        return [_topic_description(self._wait(answers[name])) for name in names]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str],
        validate_only: bool = False,
    ) -> None:
        """Create a topic; what is left out is the broker's default (P4)."""
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(configs),
        )
        answers = self._client.create_topics(
            [topic], request_timeout=self._timeout_s, validate_only=validate_only
        )
        self._wait_for_all(answers.values())

    def create_partitions(self, topic: str, *, partitions: int) -> None:
        """Raise the number of partitions of `topic` to `partitions`."""
        answers = self._client.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=self._timeout_s
        )
        self._wait_for_all(answers.values())

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        answers = self._client.delete_topics([name], request_timeout=self._timeout_s)
        self._wait_for_all(answers.values())

    def offset_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, OffsetBounds]:
        """Start and end of each partition. One without a leader is left out."""
        chosen = list(partitions)
        starts = self._list_offsets(topic, chosen, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._list_offsets(topic, chosen, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {
            partition: OffsetBounds(start_offset=starts[partition], end_offset=ends[partition])
            for partition in chosen
            if partition in starts and partition in ends
        }

    def last_stable_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Where who reads committed records has to stop in each partition that is led."""
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._list_offsets(
            topic, list(partitions), spec, isolation_level=IsolationLevel.READ_COMMITTED
        )

    def offsets_at(
        self, topic: str, partitions: Iterable[int], *, timestamp_ms: int
    ) -> dict[int, int | None]:
        """The first offset of each partition with that timestamp or a later one, None if none."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._list_offsets(topic, list(partitions), spec)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def configs(self, resource: Resource) -> tuple[ConfigValue, ...]:
        """The settings in force, by name. Of ClusterDefaults: only those that were set."""
        match resource:
            case TopicResource(name):
                require_topic_name(name)
                values = self._describe_configs(ResourceType.TOPIC, name)
            case BrokerResource(broker_id):
                from tidelog.client import direct  # noqa: PLC0415 - loads kio

                # confluent-kafka keeps one synonym of a name, and not the first.
                address = self._broker_address(broker_id)
                values = direct.describe_broker(address, broker_id, timeout_s=self._timeout_s)
            case GroupResource(group_id):
                require_group_id(group_id)
                values = self._describe_configs(ResourceType.GROUP, group_id)
            case ClusterDefaults():
                from tidelog.client import direct  # noqa: PLC0415 - loads kio

                address = self._controller_address()
                values = direct.describe_cluster_defaults(address, timeout_s=self._timeout_s)
            case LoggerResource(broker_id):
                from tidelog.client import direct  # noqa: PLC0415 - loads kio

                address = self._broker_address(broker_id)
                values = direct.describe_loggers(address, broker_id, timeout_s=self._timeout_s)
            case _:
                assert_never(resource)
        return tuple(sorted(values, key=lambda value: value.name))

    def alter_configs(
        self, resource: Resource, *, set_values: Mapping[str, str], deleted: Sequence[str]
    ) -> None:
        """Set some settings and take others back to their default; all of them or none.

        Raises ConfigError for one to be taken back that the cluster has never heard of, for which a
        broker says, as Kafka's does, that it is done.
        """
        self._require_known(resource, set_values, deleted)
        match resource:
            case TopicResource(name):
                require_topic_name(name)
                self._alter_configs(ResourceType.TOPIC, name, set_values, deleted)
            case BrokerResource(broker_id) if self._is_alive(broker_id):
                self._alter_configs(ResourceType.BROKER, str(broker_id), set_values, deleted)
            case BrokerResource(broker_id):
                # What is set for a broker that is gone may stand in the way of others' settings.
                from tidelog.client import direct  # noqa: PLC0415 - loads kio

                direct.alter_broker(
                    self._controller_address(),
                    broker_id,
                    set_values=set_values,
                    deleted=deleted,
                    timeout_s=self._timeout_s,
                )
            case GroupResource(group_id):
                require_group_id(group_id)
                self._alter_configs(ResourceType.GROUP, group_id, set_values, deleted)
            case ClusterDefaults():
                from tidelog.client import direct  # noqa: PLC0415 - loads kio

                direct.alter_cluster_defaults(
                    self._controller_address(),
                    set_values=set_values,
                    deleted=deleted,
                    timeout_s=self._timeout_s,
                )
            case LoggerResource(broker_id):
                from tidelog.client import direct  # noqa: PLC0415 - loads kio

                direct.alter_loggers(
                    self._broker_address(broker_id),
                    broker_id,
                    set_values=set_values,
                    deleted=deleted,
                    timeout_s=self._timeout_s,
                )
            case _:
                assert_never(resource)

    def _require_known(
        self, resource: Resource, set_values: Mapping[str, str], deleted: Sequence[str]
    ) -> None:
        for name in deleted:
            if name in set_values:
                raise ConfigError(f"{name} is to be set and to be deleted")
        if not deleted or isinstance(resource, LoggerResource):
            return  # A broker refuses a logger that it does not know.
        if isinstance(resource, ClusterDefaults | BrokerResource):
            # Each broker knows the names of all; the one that is meant may be gone.
            kind, broker_id = "broker", self.describe_cluster().brokers[0].id
            values = self._describe_configs(ResourceType.BROKER, str(broker_id))
        else:
            kind = "group" if isinstance(resource, GroupResource) else "topic"
            values = self.configs(resource)
        known = {value.name for value in values}
        for name in deleted:
            if name not in known:
                raise ConfigError(f"{name} is not a {kind} setting")

    def log_dirs(self) -> tuple[LogDirDescription, ...]:
        """The log dirs of every broker that the cluster takes for alive."""
        from tidelog.client import direct  # noqa: PLC0415 - loads kio

        found: list[LogDirDescription] = []
        for broker in self.describe_cluster().brokers:
            address = Address(broker.host, broker.port)
            try:
                found += direct.describe_log_dirs(address, broker.id, timeout_s=self._timeout_s)
            except ClusterUnreachable:
                found.append(_no_log_dir(broker.id))
        return tuple(found)

    def move_replica(self, topic: str, partition: int, *, broker_id: int, log_dir: str) -> None:
        """Begin to move a replica to another log dir of its broker. Raises RequestFailed."""
        from tidelog.client import direct  # noqa: PLC0415 - loads kio

        for broker in self.describe_cluster().brokers:
            if broker.id == broker_id:
                direct.alter_replica_log_dir(
                    Address(broker.host, broker.port),
                    topic,
                    partition,
                    log_dir=log_dir,
                    timeout_s=self._timeout_s,
                )
                return
        raise RequestFailed("BROKER_NOT_AVAILABLE", f"there is no broker {broker_id}")

    def _describe_configs(self, kind: ResourceType, name: str) -> tuple[ConfigValue, ...]:
        answers = self._client.describe_configs(
            [ConfigResource(kind, name)], request_timeout=self._timeout_s
        )
        (answer,) = answers.values()
        return tuple(_config_value(entry) for entry in self._wait(answer).values())

    def _alter_configs(
        self, kind: ResourceType, name: str, set_values: Mapping[str, str], deleted: Sequence[str]
    ) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in set_values.items()
        ]
        changes += [
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            for name in deleted
        ]
        resource = ConfigResource(kind, name, incremental_configs=changes)
        answers = self._client.incremental_alter_configs(
            [resource], request_timeout=self._timeout_s
        )
        self._wait_for_all(answers.values())

    def _is_alive(self, broker_id: int) -> bool:
        return any(broker.id == broker_id for broker in self.describe_cluster().brokers)

    def _require_broker(self, broker_id: int) -> None:
        # librdkafka would wait for a broker of that number until the request times out.
        known = [broker.id for broker in self.describe_cluster().brokers]
        if broker_id not in known:
            alive = ", ".join(map(str, known))
            raise RequestFailed("_UNKNOWN_BROKER", f"there is no broker {broker_id}, only {alive}")

    def _broker_address(self, broker_id: int) -> Address:
        self._require_broker(broker_id)
        return next(
            Address(broker.host, broker.port)
            for broker in self.describe_cluster().brokers
            if broker.id == broker_id
        )

    def _controller_address(self) -> Address:
        cluster = self.describe_cluster()
        for broker in cluster.brokers:
            if broker.id == cluster.controller_id:
                return Address(broker.host, broker.port)
        raise RequestFailed("NOT_CONTROLLER", "the cluster has no controller at the moment")

    def _list_offsets(
        self,
        topic: str,
        partitions: list[int],
        spec: OffsetSpec,
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        if not partitions:
            return {}
        answers = self._client.list_offsets(
            {TopicPartition(topic, partition): spec for partition in partitions},
            isolation_level=isolation_level,
            request_timeout=self._timeout_s,
        )
        found = {}
        for topic_partition, answer in answers.items():
            try:
                offset = self._wait(answer).offset
            except RequestFailed as failed:
                if failed.code_name not in _NO_LEADER:
                    raise
                continue
            # What librdkafka says of a leader that it could not reach in time.
            if offset != OFFSET_INVALID:
                found[topic_partition.partition] = offset
        return found

    def _wait_for_all(self, answers: "Iterable[Future[T]]") -> None:
        for answer in answers:
            self._wait(answer)

    def _wait(self, answer: "Future[T]") -> T:
        # Ends: librdkafka completes every future when its request times out.
        with translated(self._bootstrap):
            return answer.result()


def _no_log_dir(broker_id: int) -> LogDirDescription:
    return LogDirDescription(
        broker_id=broker_id,
        path=None,
        error="no answer",
        total_bytes=None,
        usable_bytes=None,
        replicas=(),
    )


def _topic_description(topic: KafkaTopicDescription) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition=partition.id,
            leader=None if partition.leader is None else partition.leader.id,
            replicas=tuple(node.id for node in partition.replicas),
            isr=tuple(node.id for node in partition.isr),
        )
        for partition in topic.partitions
    ]
    # Kafka's tools print ids in the alphabet that is safe in an URL; librdkafka in the other.
    topic_id = str(topic.topic_id).translate(str.maketrans("+/", "-_"))
    return TopicDescription(
        name=topic.name,
        topic_id=None if topic_id == _NO_TOPIC_ID else topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda partition: partition.partition)),
    )


def _config_value(entry: ConfigEntry) -> ConfigValue:
    # confluent-kafka types it as an enum and hands out the number.
    source = entry.source if isinstance(entry.source, int) else entry.source.value
    return ConfigValue(
        name=entry.name,
        value=entry.value,
        source=CONFIG_SOURCES.get(source, "unknown"),
        is_read_only=bool(entry.is_read_only),
        is_sensitive=bool(entry.is_sensitive),
    )
