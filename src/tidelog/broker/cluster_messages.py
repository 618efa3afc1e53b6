"""The cluster image in the words of the controller's requests, and back.

`core/` knows images, `wire/` knows bytes; what brokers tell each other about the cluster is
translated here. Nothing is decided, but that what is older than what is known is no news.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    Change,
    ClientConfigChanged,
    ControllerChanged,
    GroupConfigChanged,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    broker_changes,
    changes_between,
    failed_replica_changes,
)
from tidelog.core.controller.image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    LastStop,
    PartitionImage,
    Settings,
    TopicImage,
)
from tidelog.core.controller.nodes import DEFAULT_ENTITY
from tidelog.wire.cluster_states import (
    BrokerEndpoint,
    LiveBroker,
    PartitionState,
    TopicStates,
)
from tidelog.wire.update_metadata import (
    EntityKind,
    EntitySettings,
    FailedReplicas,
    UpdateMetadataRequest,
)

# -- out -------------------------------------------------------------------------------------------


def live_brokers(image: ClusterImage) -> list[LiveBroker]:
    return [
        LiveBroker(
            broker.broker_id,
            broker.broker_epoch,
            broker.rack,
            tuple(
                BrokerEndpoint(one.listener, one.security_protocol, one.host, one.port)
                for one in broker.endpoints
            ),
        )
        for broker in image.brokers.values()
    ]


def broker_epochs(image: ClusterImage) -> list[tuple[int, int]]:
    return [(broker.broker_id, broker.broker_epoch) for broker in image.brokers.values()]


def topic_states(image: ClusterImage, partitions: Mapping[str, Iterable[int]]) -> list[TopicStates]:
    """The states of some partitions; of what is gone there is nothing to say.

    A topic may have been made again with fewer partitions since it was named.
    """
    return [
        TopicStates(
            name,
            topic.topic_id.bytes,
            [
                _state(number, topic.partitions[number])
                for number in sorted(numbers)
                if number < len(topic.partitions)
            ],
        )
        for name, numbers in partitions.items()
        if (topic := image.topics.get(name)) is not None
    ]


def _state(partition: int, state: PartitionImage) -> PartitionState:
    return PartitionState(
        partition,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.replicas,
        state.isr,
        state.adding_replicas,
        state.removing_replicas,
    )


def entity_settings(
    image: ClusterImage, entities: Iterable[tuple[EntityKind, str]]
) -> list[EntitySettings]:
    return [
        EntitySettings(kind, name, list(_settings_of(image, kind, name).items()))
        for kind, name in entities
    ]


def _settings_of(image: ClusterImage, kind: EntityKind, name: str) -> Settings:
    match kind:
        case EntityKind.TOPIC:
            return image.topic_config(name)
        case EntityKind.BROKER:
            return image.broker_config(_broker_of(name))
        case EntityKind.CLIENT:
            return image.client_configs.get(name, {})
        case EntityKind.GROUP:
            return image.group_config(name)


def all_entities(image: ClusterImage) -> Iterator[tuple[EntityKind, str]]:
    """Everything that has settings."""
    yield from ((EntityKind.TOPIC, name) for name in image.topic_configs)
    yield from ((EntityKind.BROKER, entity_name(each)) for each in image.broker_configs)
    yield from ((EntityKind.CLIENT, name) for name in image.client_configs)
    yield from ((EntityKind.GROUP, name) for name in image.group_configs)


def entity_name(broker_id: BrokerId | None) -> str:
    return DEFAULT_ENTITY if broker_id is None else str(broker_id)


def _broker_of(name: str) -> BrokerId | None:
    if name == DEFAULT_ENTITY:
        return None
    if not name.isdecimal() or len(name) > 10:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"'{name}' is not a broker id")
    return BrokerId(int(name))


def failed_replicas(image: ClusterImage, brokers: Iterable[BrokerId]) -> list[FailedReplicas]:
    """What is known of the disks of `brokers`; of those that are gone there is nothing to say."""
    return [
        FailedReplicas(
            broker_id, _by_topic_id(image, image.failed_replicas.get(broker_id, frozenset()))
        )
        for broker_id in brokers
        if broker_id in image.brokers
    ]


def _by_topic_id(
    image: ClusterImage, replicas: Iterable[TopicPartition]
) -> list[tuple[bytes, list[int]]]:
    partitions: dict[bytes, list[int]] = {}
    for topic, partition in sorted(replicas):  # Of a set: the same bytes for the same set.
        if topic in image.topics:
            partitions.setdefault(image.topics[topic].topic_id.bytes, []).append(partition)
    return list(partitions.items())


# -- in --------------------------------------------------------------------------------------------


def partition_image(state: PartitionState) -> PartitionImage:
    """Raises RequestRefused for what no controller of ours can have said."""
    replicas = set(state.replicas)
    is_sound = len(replicas) == len(state.replicas) > 0 and replicas >= set(state.isr)
    if state.partition < 0 or not is_sound:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"partition {state.partition}: {state}")
    return PartitionImage(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        replicas=_brokers(state.replicas),
        isr=_brokers(state.isr),
        adding_replicas=_brokers(state.adding_replicas),
        removing_replicas=_brokers(state.removing_replicas),
        partition_epoch=state.partition_epoch,
    )


def _brokers(ids: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def changes_from(image: ClusterImage, request: UpdateMetadataRequest) -> list[Change]:
    """What is new in an UpdateMetadata. Raises RequestRefused if it cannot follow on `image`."""
    controller = ControllerChanged(
        BrokerId(request.header.controller_id), ControllerEpoch(request.header.controller_epoch)
    )
    if request.is_full:
        full = _image_from(image.cluster_id, request, controller)
        full = full.apply_all(_failed_changes(full, request))
        return [one for one in changes_between(image, full) if not _is_older(image, one)]
    changes: list[Change] = []
    if (image.controller_id, image.controller_epoch) != (
        controller.controller_id,
        controller.controller_epoch,
    ):
        changes.append(controller)
    changes += broker_changes(image.brokers, _brokers_from(request))
    changes += _deletions(image, request)
    settings = {
        entity.name: dict(entity.settings)
        for entity in request.settings
        if entity.kind == EntityKind.TOPIC
    }
    for topic in request.topics:
        changes += _topic_changes(image, topic, settings)
    changes += _settings_changes(image.apply_all(changes), request)
    if request.failed_replicas:
        changes += _failed_changes(image.apply_all(changes), request)
    return changes


def _failed_changes(image: ClusterImage, request: UpdateMetadataRequest) -> list[Change]:
    """Of the topics that are known by now: of others there is nothing to be told."""
    failed = dict(image.failed_replicas)
    for broker in request.failed_replicas:
        broker_id = BrokerId(broker.broker_id)
        if broker_id not in image.brokers:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is not alive")
        failed[broker_id] = frozenset(
            TopicPartition(topic.name, partition)
            for topic_id, partitions in broker.topics
            if (topic := image.topic_by_id(TopicId(UUID(bytes=topic_id)))) is not None
            for partition in partitions
        )
    return failed_replica_changes(image, {one: each for one, each in failed.items() if each})


def _brokers_from(request: UpdateMetadataRequest) -> dict[BrokerId, BrokerImage]:
    return {
        BrokerId(broker.broker_id): BrokerImage(
            BrokerId(broker.broker_id),
            broker.broker_epoch,
            tuple(
                Endpoint(one.listener, one.security_protocol, one.host, one.port)
                for one in broker.endpoints
            ),
            broker.rack,
            LastStop.CLEAN,  # Of no use but to a controller, which reads it from the tree.
        )
        for broker in request.live_brokers
    }


def _image_from(
    cluster_id: str, request: UpdateMetadataRequest, controller: ControllerChanged
) -> ClusterImage:
    topics = {topic.name: _topic_image(topic) for topic in request.topics}
    settings: dict[EntityKind, dict[str, Settings]] = {kind: {} for kind in EntityKind}
    for entity in request.settings:
        settings[_kind(entity)][entity.name] = dict(entity.settings)
    return ClusterImage(
        cluster_id=cluster_id,
        controller_id=controller.controller_id,
        controller_epoch=controller.controller_epoch,
        brokers=_brokers_from(request),
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
        topic_configs=settings[EntityKind.TOPIC],
        broker_configs={
            _broker_of(name): each for name, each in settings[EntityKind.BROKER].items()
        },
        client_configs=settings[EntityKind.CLIENT],
        group_configs=settings[EntityKind.GROUP],
    )


def _topic_image(topic: TopicStates) -> TopicImage:
    if [state.partition for state in topic.partitions] != list(range(len(topic.partitions))):
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"partitions of {topic.name} are missing")
    return TopicImage(
        topic.name,
        TopicId(UUID(bytes=topic.topic_id)),
        tuple(map(partition_image, topic.partitions)),
    )


def _kind(entity: EntitySettings) -> EntityKind:
    try:
        return EntityKind(entity.kind)
    except ValueError:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"nothing has settings of kind {entity.kind}"
        ) from None


def _deletions(image: ClusterImage, request: UpdateMetadataRequest) -> Iterator[Change]:
    for topic_id in request.deleted_topics:
        known = image.topic_by_id(TopicId(UUID(bytes=topic_id)))
        if known is not None:
            yield TopicDeleted(known.name, known.topic_id)


def _topic_changes(
    image: ClusterImage, topic: TopicStates, settings: Mapping[str, Settings]
) -> Iterator[Change]:
    known = image.topic_by_id(TopicId(UUID(bytes=topic.topic_id)))
    if known is None:
        yield TopicCreated(_topic_image(topic), settings.get(topic.name, {}))
        return
    count = len(known.partitions)
    added: list[PartitionImage] = []
    for state in topic.partitions:
        if state.partition >= count:
            if state.partition != count + len(added):
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST, f"partitions of {topic.name} are missing"
                )
            added.append(partition_image(state))
        else:
            change = PartitionChanged(known.name, state.partition, partition_image(state))
            if not _is_older(image, change):
                yield change
    if added:
        yield PartitionsAdded(known.name, count, tuple(added))


def _is_older(image: ClusterImage, change: Change) -> bool:
    """Whether `image` knows as much, or more, of the partition."""
    if not isinstance(change, PartitionChanged):
        return False
    known = image.topics[change.topic].partitions[change.partition]
    return (
        change.state.partition_epoch <= known.partition_epoch
        or change.state.leader_epoch < known.leader_epoch
    )


def _settings_changes(image: ClusterImage, request: UpdateMetadataRequest) -> Iterator[Change]:
    for entity in request.settings:
        settings = dict(entity.settings)
        kind = _kind(entity)
        if settings == _settings_of(image, kind, entity.name):
            continue
        match kind:
            case EntityKind.TOPIC:
                if entity.name in image.topics:
                    yield TopicConfigChanged(entity.name, settings)
            case EntityKind.BROKER:
                yield BrokerConfigChanged(_broker_of(entity.name), settings)
            case EntityKind.CLIENT:
                yield ClientConfigChanged(entity.name, settings)
            case EntityKind.GROUP:
                yield GroupConfigChanged(entity.name, settings)


def partitions_of(
    topics: Sequence[TopicStates],
) -> Iterator[tuple[TopicPartition, tuple[TopicId, PartitionImage]]]:
    """The partitions that a LeaderAndIsr is about."""
    for topic in topics:
        topic_id = TopicId(UUID(bytes=topic.topic_id))
        for state in topic.partitions:
            yield TopicPartition(topic.name, state.partition), (topic_id, partition_image(state))
