"""Creating, growing and deleting topics: what is allowed and what follows (P1, P4).

Every function takes the image and a request and returns a Decision. Error codes and the order in
which faults are looked for are Kafka's: name, existence, settings, then replicas. A topic that is
asked for twice in one request is refused (INVALID_REQUEST) and answered once, its neighbours are
served.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, TopicId
from tidelog.core.controller import names
from tidelog.core.controller.changes import PartitionsAdded, TopicCreated, TopicDeleted
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.election import first_state
from tidelog.core.controller.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    Settings,
    TopicImage,
)
from tidelog.core.controller.placement import Replicas, place, require_valid, start_after
from tidelog.core.controller.requests import (
    USE_DEFAULT,
    NewPartitions,
    NewTopic,
    TopicOutcome,
    TopicReference,
)

PARTITIONS_PER_REQUEST_MAX = 10_000
_NAMED_BY_BOTH = RequestRefused(
    ErrorCode.INVALID_REQUEST, "the topic is in the request by its name and by its id"
)

ValidateConfigs = Callable[[Settings], None]
"""Raises RequestRefused unless these settings of a topic are valid together."""


@dataclass(frozen=True, slots=True)
class Chance:
    """Where decisions draw lots: a number below a bound, and an id that nothing else has."""

    below: Callable[[int], int]
    new_topic_id: Callable[[], TopicId]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What USE_DEFAULT stands for."""

    num_partitions: int
    default_replication_factor: int


def create_topics(
    image: ClusterImage,
    topics: Sequence[NewTopic],
    *,
    staying: Set[BrokerId] | None = None,
    defaults: TopicDefaults,
    chance: Chance,
    validate_configs: ValidateConfigs,
) -> Decision[TopicOutcome]:
    """Create each topic that may be created, on brokers that are `staying`: all if not said."""
    times = Counter(topic.name for topic in topics)
    if sum(_partition_count(topic, defaults) for topic in topics) > PARTITIONS_PER_REQUEST_MAX:
        return Decision([_too_many(name) for name in times], [])
    existing = names.folded(image.topics) if any(map(names.can_collide, times)) else {}
    usable = _usable(image, staying)
    decision: Decision[TopicOutcome] = Decision([], [])
    for topic in {topic.name: topic for topic in topics}.values():
        try:
            _require_once(topic.name, times)
            _require_creatable(topic.name, image, existing)
            created = _created(topic, image, usable, defaults, chance, validate_configs)
        except RequestRefused as refusal:
            decision.outcomes.append(_refused(topic.name, refusal))
            continue
        existing.setdefault(names.fold(topic.name), topic.name)
        decision.changes.append(created)
        decision.outcomes.append(_created_outcome(created))
    return decision


def _usable(image: ClusterImage, staying: Set[BrokerId] | None) -> Mapping[BrokerId, BrokerImage]:
    if staying is None:
        return image.brokers
    return {each: broker for each, broker in image.brokers.items() if each in staying}


def _partition_count(topic: NewTopic, defaults: TopicDefaults) -> int:
    """At least one: a topic that will be refused is work as well."""
    if topic.assignments:
        return len(topic.assignments)
    if topic.partition_count == USE_DEFAULT:
        return defaults.num_partitions
    return max(topic.partition_count, 1)


def _too_many(name: str) -> TopicOutcome:
    return TopicOutcome(
        name=name,
        error=ErrorCode.POLICY_VIOLATION,
        message=f"one request may create at most {PARTITIONS_PER_REQUEST_MAX} partitions",
    )


def _require_once(name: str, times: Mapping[str, int]) -> None:
    if times[name] > 1:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"the topic '{name}' is in the request {times[name]} times"
        )


def _require_creatable(name: str, image: ClusterImage, existing: Mapping[str, str]) -> None:
    if name == names.CLUSTER_METADATA_TOPIC:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"'{name}' is reserved by Kafka")
    names.require_legal(name)
    if name in image.topics:
        # Kafka's own words, because scripts look for them.
        raise RequestRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    names.require_distinct(name, existing)


def _created(
    topic: NewTopic,
    image: ClusterImage,
    usable: Mapping[BrokerId, BrokerImage],
    defaults: TopicDefaults,
    chance: Chance,
    validate_configs: ValidateConfigs,
) -> TopicCreated:
    configs = _given_configs(topic)
    validate_configs(configs)
    replicas = (
        _replicas_by_hand(topic, image, usable.keys())
        if topic.assignments
        else _replicas_by_rule(topic, usable, defaults, chance)
    )
    partitions = _first_states(replicas, usable.keys())
    return TopicCreated(TopicImage(topic.name, chance.new_topic_id(), partitions), configs)


def _given_configs(topic: NewTopic) -> dict[str, str]:
    # Of a setting that is given twice the last counts, as in Kafka.
    configs: dict[str, str] = {}
    for name, value in topic.configs:
        if value is None:
            raise RequestRefused(ErrorCode.INVALID_CONFIG, f"{name} is null but must have a value")
        configs[name] = value
    return configs


def _replicas_by_hand(
    topic: NewTopic, image: ClusterImage, staying: Set[BrokerId]
) -> tuple[Replicas, ...]:
    if topic.replication_factor != USE_DEFAULT or topic.partition_count != USE_DEFAULT:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            "with an assignment by hand, partition count and replication factor must be -1",
        )
    assigned: dict[int, Replicas] = {}
    replication_factor: int | None = None
    for partition, replicas in topic.assignments:
        if partition in assigned:
            raise RequestRefused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} is assigned twice"
            )
        require_valid(replicas, image.brokers, staying, replication_factor=replication_factor)
        replication_factor = len(replicas)
        assigned[partition] = replicas
    if sorted(assigned) != list(range(len(assigned))):
        raise RequestRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions must be numbered from 0 without a gap, not {sorted(assigned)}",
        )
    return tuple(assigned[partition] for partition in range(len(assigned)))


def _replicas_by_rule(
    topic: NewTopic,
    usable: Mapping[BrokerId, BrokerImage],
    defaults: TopicDefaults,
    chance: Chance,
) -> tuple[Replicas, ...]:
    replication_factor, partition_count = topic.replication_factor, topic.partition_count
    if replication_factor < USE_DEFAULT or replication_factor == 0:
        raise RequestRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is neither positive nor -1",
        )
    if partition_count < USE_DEFAULT or partition_count == 0:
        raise RequestRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"partition count {partition_count} is neither positive nor -1",
        )
    if replication_factor == USE_DEFAULT:
        replication_factor = defaults.default_replication_factor
    if partition_count == USE_DEFAULT:
        partition_count = defaults.num_partitions
    bound = max(len(usable), 1)
    return place(
        usable,
        partition_count=partition_count,
        replication_factor=replication_factor,
        first_partition=0,
        start_index=chance.below(bound),
        shift=chance.below(bound),
    )


def _first_states(
    assigned: Sequence[Replicas], staying: Set[BrokerId]
) -> tuple[PartitionImage, ...]:
    return tuple(first_state(replicas, staying) for replicas in assigned)


def _created_outcome(created: TopicCreated) -> TopicOutcome:
    topic = created.topic
    return TopicOutcome(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_count=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=created.configs,
    )


def create_partitions(
    image: ClusterImage,
    topics: Sequence[NewPartitions],
    *,
    staying: Set[BrokerId] | None = None,
) -> Decision[TopicOutcome]:
    """Give each topic as many partitions as are asked for, if that is more than it has.

    New partitions are on brokers that are `staying`: all if not said.
    """
    usable = _usable(image, staying)
    times = Counter(topic.topic for topic in topics)
    decision: Decision[TopicOutcome] = Decision([], [])
    budget = PARTITIONS_PER_REQUEST_MAX
    for topic in {topic.topic: topic for topic in topics}.values():
        try:
            _require_once(topic.topic, times)
            added = _added(topic, image, usable, budget)
        except RequestRefused as refusal:
            decision.outcomes.append(_refused(topic.topic, refusal))
            continue
        budget -= len(added.partitions)
        decision.changes.append(added)
        decision.outcomes.append(TopicOutcome(name=topic.topic))
    return decision


def _added(
    request: NewPartitions,
    image: ClusterImage,
    usable: Mapping[BrokerId, BrokerImage],
    budget: int,
) -> PartitionsAdded:
    topic = image.topics.get(request.topic)
    if topic is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{request.topic}'"
        )
    count = len(topic.partitions)
    missing = request.partition_count - count
    if missing <= 0:
        raise RequestRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {count} partition(s) already; {request.partition_count} is not more",
        )
    if topic.name in names.INTERNAL_TOPICS:
        raise RequestRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.name} has {count} partition(s) for good: their number decides which of them "
            "has what is committed, and it would not be found in another",
        )
    if missing > budget:
        raise RequestRefused(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create at most {PARTITIONS_PER_REQUEST_MAX} partitions",
        )
    replicas = _added_replicas(request, topic, image, usable, missing)
    return PartitionsAdded(topic.name, count, _first_states(replicas, usable.keys()))


def _added_replicas(
    request: NewPartitions,
    topic: TopicImage,
    image: ClusterImage,
    usable: Mapping[BrokerId, BrokerImage],
    missing: int,
) -> Sequence[Replicas]:
    if request.assignments is None:
        start_index = start_after(usable, topic.partitions[0].replicas[0])
        return place(
            usable,
            partition_count=missing,
            replication_factor=topic.replication_factor,
            first_partition=len(topic.partitions),
            start_index=start_index,
            shift=start_index,
        )
    if len(request.assignments) != missing:
        raise RequestRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{missing} partition(s) are to be added, but {len(request.assignments)} are assigned",
        )
    for replicas in request.assignments:
        require_valid(
            replicas,
            image.brokers,
            usable.keys(),
            replication_factor=topic.replication_factor,
        )
    return request.assignments


def delete_topics(
    image: ClusterImage, references: Sequence[TopicReference], *, delete_topic_enable: bool
) -> Decision[TopicOutcome]:
    """Delete each topic that is there.

    A reference that is repeated is a mistake and answered once. So is a topic that is named by
    name and by id; as in Kafka, the name gets the answer, with the id, and the id gets none.
    """
    times = Counter(references)
    by_id = {
        topic.name
        for reference in times
        if reference.name is None and (topic := _find(image, reference)) is not None
    }
    by_name = {
        reference.name
        for reference, count in times.items()
        if count == 1 and reference.topic_id is None
    }
    decision: Decision[TopicOutcome] = Decision([], [])
    for reference, count in times.items():
        try:
            _require_deletable(reference, count, delete_topic_enable)
            topic = _referred(image, reference)
        except RequestRefused as refusal:
            decision.outcomes.append(_not_deleted(reference, refusal))
            continue
        if reference.name is None and topic.name in by_name:
            continue
        if reference.name is not None and topic.name in by_id:
            twice = TopicReference(name=topic.name, topic_id=topic.topic_id)
            decision.outcomes.append(_not_deleted(twice, _NAMED_BY_BOTH))
            continue
        decision.changes.append(TopicDeleted(topic.name, topic.topic_id))
        decision.outcomes.append(TopicOutcome(name=topic.name, topic_id=topic.topic_id))
    return decision


def _not_deleted(reference: TopicReference, refusal: RequestRefused) -> TopicOutcome:
    return TopicOutcome(
        name=reference.name,
        topic_id=reference.topic_id,
        error=refusal.code,
        message=refusal.message,
    )


def _require_deletable(reference: TopicReference, times: int, delete_topic_enable: bool) -> None:
    if not delete_topic_enable:
        raise RequestRefused(
            ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this cluster"
        )
    if reference.name is not None and reference.topic_id is not None:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "a topic is named by name and by id")
    if reference.name is None and reference.topic_id is None:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "a topic has neither name nor id")
    if times > 1:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"the same topic is in the request {times} times"
        )


def _find(image: ClusterImage, reference: TopicReference) -> TopicImage | None:
    if reference.name is not None:
        return image.topics.get(reference.name)
    if reference.topic_id is not None:
        return image.topic_by_id(reference.topic_id)
    return None


def _referred(image: ClusterImage, reference: TopicReference) -> TopicImage:
    topic = _find(image, reference)
    if topic is not None:
        return topic
    if reference.name is not None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{reference.name}'"
        )
    raise RequestRefused(
        ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {reference.topic_id}"
    )


def _refused(name: str, refusal: RequestRefused) -> TopicOutcome:
    return TopicOutcome(name=name, error=refusal.code, message=refusal.message)
