"""Creating, growing and deleting topics, with Kafka's error codes (P1, P4).

The codes and their order of precedence were compared with those of Apache Kafka 4.3.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest

from tests.unit.core.controller.clusters import brokers, cluster, ids, partition, topic, topic_id
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, TopicId
from tidelog.core.controller import topics
from tidelog.core.controller.changes import PartitionsAdded, TopicCreated, TopicDeleted
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.image import ClusterImage, Settings
from tidelog.core.controller.names import INTERNAL_TOPICS
from tidelog.core.controller.requests import (
    NewPartitions,
    NewTopic,
    TopicOutcome,
    TopicReference,
)
from tidelog.core.controller.topics import Chance, TopicDefaults

DEFAULTS = TopicDefaults(num_partitions=4, default_replication_factor=2)
IMAGE = cluster(
    brokers(1, 2, 3),
    topic("exists", 1, partition(1, 2), partition(2, 3), partition(3, 1)),
    topic("dotted.name", 2),
)


def chance() -> Chance:
    numbers = count(100)
    return Chance(lambda _bound: 0, lambda: TopicId(UUID(int=next(numbers))))


def only_retention(settings: Settings) -> None:
    for name in settings:
        if name != "retention.ms":
            raise RequestRefused(ErrorCode.INVALID_CONFIG, f"{name} is not a topic setting")


def create(
    *requested: NewTopic, image: ClusterImage = IMAGE, stopping: Sequence[int] = ()
) -> Decision[TopicOutcome]:
    return topics.create_topics(
        image,
        requested,
        staying=image.brokers.keys() - set(stopping),
        defaults=DEFAULTS,
        chance=chance(),
        validate_configs=only_retention,
    )


def codes(decision: Decision[TopicOutcome]) -> list[tuple[str | None, ErrorCode]]:
    return [(outcome.name, outcome.error) for outcome in decision.outcomes]


def test_a_topic_gets_an_id_replicas_and_leaders() -> None:
    decision = create(
        NewTopic(
            name="new",
            partition_count=3,
            replication_factor=2,
            configs=(("retention.ms", "1"), ("retention.ms", "2")),
        )
    )
    created = topic("new", 100, partition(1, 2), partition(2, 3), partition(3, 1))
    assert decision.changes == [TopicCreated(created, {"retention.ms": "2"})]
    assert decision.outcomes == [
        TopicOutcome(
            name="new",
            topic_id=topic_id(100),
            partition_count=3,
            replication_factor=2,
            configs={"retention.ms": "2"},
        )
    ]
    assert IMAGE.apply_all(decision.changes).topics["new"] == created


def test_minus_one_is_the_brokers_default() -> None:
    (outcome,) = create(NewTopic(name="new")).outcomes
    assert (outcome.partition_count, outcome.replication_factor) == (4, 2)


def test_an_assignment_by_hand_is_followed() -> None:
    decision = create(NewTopic(name="new", assignments=((1, ids(3, 1)), (0, ids(2, 3)))))
    assert decision.changes == [
        TopicCreated(topic("new", 100, partition(2, 3), partition(3, 1)), {})
    ]


REFUSED = [
    (NewTopic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic(name="dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic(name="exists"), ErrorCode.TOPIC_ALREADY_EXISTS),
    (NewTopic(name="exists", partition_count=0), ErrorCode.TOPIC_ALREADY_EXISTS),
    (NewTopic(name="__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    (NewTopic(name="n", partition_count=0), ErrorCode.INVALID_PARTITIONS),
    (NewTopic(name="n", partition_count=-2), ErrorCode.INVALID_PARTITIONS),
    (NewTopic(name="n", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic(name="n", replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic(name="n", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
    (
        NewTopic(name="n", replication_factor=0, partition_count=0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ),
    (NewTopic(name="n", configs=(("no.such", "1"),)), ErrorCode.INVALID_CONFIG),
    (NewTopic(name="n", configs=(("retention.ms", None),)), ErrorCode.INVALID_CONFIG),
    (
        NewTopic(name="n", partition_count=0, configs=(("no.such", "1"),)),
        ErrorCode.INVALID_CONFIG,
    ),
    (
        NewTopic(name="n", partition_count=1, assignments=((0, ids(1)),)),
        ErrorCode.INVALID_REQUEST,
    ),
    (
        NewTopic(name="n", replication_factor=1, assignments=((0, ids(1)),)),
        ErrorCode.INVALID_REQUEST,
    ),
    (NewTopic(name="n", assignments=((0, ids(9)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic(name="n", assignments=((0, ids()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic(name="n", assignments=((0, ids(1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic(name="n", assignments=((1, ids(1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (
        NewTopic(name="n", assignments=((0, ids(1)), (0, ids(2)))),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    (
        NewTopic(name="n", assignments=((0, ids(1)), (1, ids(2, 3)))),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    (NewTopic(name="n", partition_count=10_001), ErrorCode.POLICY_VIOLATION),
]


@pytest.mark.parametrize(("requested", "code"), REFUSED, ids=str)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(
    requested: NewTopic, code: ErrorCode
) -> None:
    decision = create(requested)
    assert codes(decision) == [(requested.name, code)]
    assert decision.outcomes[0].message
    assert decision.changes == []


def test_one_refused_topic_does_not_spoil_its_neighbours() -> None:
    decision = create(NewTopic(name="a"), NewTopic(name="exists"), NewTopic(name="b"))
    assert codes(decision) == [
        ("a", ErrorCode.NONE),
        ("exists", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("b", ErrorCode.NONE),
    ]
    assert len(decision.changes) == 2


def test_a_name_that_is_asked_for_twice_is_refused_and_answered_once() -> None:
    decision = create(NewTopic(name="a"), NewTopic(name="b"), NewTopic(name="a", partition_count=9))
    assert codes(decision) == [("a", ErrorCode.INVALID_REQUEST), ("b", ErrorCode.NONE)]
    assert len(decision.changes) == 1


def test_two_new_names_that_collide_with_each_other_are_not_both_created() -> None:
    decision = create(NewTopic(name="x.y"), NewTopic(name="x_y"))
    assert codes(decision) == [
        ("x.y", ErrorCode.NONE),
        ("x_y", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_a_request_for_too_many_partitions_is_refused_whole() -> None:
    decision = create(
        NewTopic(name="a", partition_count=6_000), NewTopic(name="b", partition_count=4_001)
    )
    assert codes(decision) == [
        ("a", ErrorCode.POLICY_VIOLATION),
        ("b", ErrorCode.POLICY_VIOLATION),
    ]


def test_a_topic_that_asks_for_no_partitions_counts_as_one() -> None:
    decision = create(*(NewTopic(name=f"t{n}", partition_count=0) for n in range(10_001)))
    assert {outcome.error for outcome in decision.outcomes} == {ErrorCode.POLICY_VIOLATION}


def test_a_cluster_without_brokers_refuses_every_topic() -> None:
    decision = create(NewTopic(name="a"), image=cluster({}))
    assert codes(decision) == [("a", ErrorCode.INVALID_REPLICATION_FACTOR)]


def test_new_partitions_are_not_given_to_brokers_that_are_about_to_stop() -> None:
    decision = create(NewTopic(name="a", partition_count=3, replication_factor=2), stopping=[2])
    (change,) = decision.changes
    assert isinstance(change, TopicCreated)
    assert [state.replicas for state in change.topic.partitions] == [
        ids(1, 3),
        ids(3, 1),
        ids(1, 3),
    ]
    decision = create(NewTopic(name="a", replication_factor=3), stopping=[2])
    assert codes(decision) == [("a", ErrorCode.INVALID_REPLICATION_FACTOR)]


def test_an_assignment_by_hand_may_name_a_broker_that_stops_but_not_as_the_leader() -> None:
    by_hand = NewTopic(name="a", assignments=((0, ids(2, 1)),))
    (change,) = create(by_hand, stopping=[2]).changes
    assert isinstance(change, TopicCreated)
    assert change.topic.partitions == (partition(2, 1, leader=1, isr=(1,)),)
    decision = create(by_hand, stopping=[1, 2])
    assert codes(decision) == [("a", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]


def grow(
    *requested: NewPartitions, image: ClusterImage = IMAGE, stopping: Sequence[int] = ()
) -> Decision[TopicOutcome]:
    return topics.create_partitions(image, requested, staying=image.brokers.keys() - set(stopping))


def test_a_topic_grows_onto_brokers_that_stay() -> None:
    decision = grow(NewPartitions(topic="exists", partition_count=6), stopping=[1])
    (change,) = decision.changes
    assert isinstance(change, PartitionsAdded)
    assert {each for state in change.partitions for each in state.replicas} == {2, 3}


def test_a_topic_that_moves_grows_by_the_replication_factor_of_its_target() -> None:
    moving = replace(partition(3, 1, 2), adding_replicas=ids(3), removing_replicas=ids(1, 2))
    image = cluster(brokers(1, 2, 3), topic("moving", 1, moving))
    decision = grow(NewPartitions(topic="moving", partition_count=2), image=image)
    (change,) = decision.changes
    assert isinstance(change, PartitionsAdded)
    assert [len(state.replicas) for state in change.partitions] == [1]


def test_a_topic_grows_by_the_rule_it_was_placed_by() -> None:
    decision = grow(NewPartitions(topic="exists", partition_count=5))
    assert codes(decision) == [("exists", ErrorCode.NONE)]
    (change,) = decision.changes
    assert isinstance(change, PartitionsAdded)
    assert [state.leader for state in change.partitions] == [1, 2]
    assert len(IMAGE.apply(change).topics["exists"].partitions) == 5


def test_a_topic_grows_by_hand() -> None:
    decision = grow(NewPartitions(topic="exists", partition_count=4, assignments=(ids(2, 1),)))
    assert decision.changes == [PartitionsAdded("exists", 3, (partition(2, 1),))]


GROWTH_REFUSED: list[tuple[str, int, Sequence[tuple[BrokerId, ...]] | None, ErrorCode]] = [
    ("absent", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("exists", 3, None, ErrorCode.INVALID_PARTITIONS),
    ("exists", 2, None, ErrorCode.INVALID_PARTITIONS),
    ("exists", 0, None, ErrorCode.INVALID_PARTITIONS),
    ("exists", -1, None, ErrorCode.INVALID_PARTITIONS),
    ("exists", 10_004, None, ErrorCode.POLICY_VIOLATION),
    ("exists", 5, [ids(1, 2)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ("exists", 4, [ids(1, 2), ids(2, 3)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ("exists", 4, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ("exists", 4, [ids(1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ("exists", 4, [ids(1, 9)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ("exists", 4, [ids(1, 1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ("exists", 4, [ids()], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
]


@pytest.mark.parametrize(("name", "partition_count", "assignments", "code"), GROWTH_REFUSED)
def test_a_topic_that_cannot_grow_is_refused_with_kafkas_code(
    name: str,
    partition_count: int,
    assignments: Sequence[tuple[BrokerId, ...]] | None,
    code: ErrorCode,
) -> None:
    requested = NewPartitions(
        topic=name,
        partition_count=partition_count,
        assignments=None if assignments is None else tuple(assignments),
    )
    decision = grow(requested)
    assert codes(decision) == [(name, code)]
    assert decision.changes == []


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_a_topic_of_coordinators_keeps_its_number_of_partitions(name: str) -> None:
    """It decides which partition has a group's offsets: after a change, another was asked."""
    image = cluster(brokers(1, 2, 3), topic(name, 1, partition(1, 2)))
    decision = grow(NewPartitions(topic=name, partition_count=2), image=image)
    assert codes(decision) == [(name, ErrorCode.INVALID_PARTITIONS)]
    assert decision.changes == []


def test_a_topic_that_is_to_grow_twice_does_not_grow() -> None:
    decision = grow(
        NewPartitions(topic="exists", partition_count=4),
        NewPartitions(topic="dotted.name", partition_count=2),
        NewPartitions(topic="exists", partition_count=5),
    )
    assert codes(decision) == [
        ("exists", ErrorCode.INVALID_REQUEST),
        ("dotted.name", ErrorCode.NONE),
    ]


def delete(*references: TopicReference, enabled: bool = True) -> Decision[TopicOutcome]:
    return topics.delete_topics(IMAGE, references, delete_topic_enable=enabled)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    decision = delete(TopicReference(name="exists"), TopicReference(topic_id=topic_id(2)))
    assert decision.changes == [
        TopicDeleted("exists", topic_id(1)),
        TopicDeleted("dotted.name", topic_id(2)),
    ]
    assert decision.outcomes == [
        TopicOutcome(name="exists", topic_id=topic_id(1)),
        TopicOutcome(name="dotted.name", topic_id=topic_id(2)),
    ]


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        (TopicReference(name="absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicReference(name=""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicReference(topic_id=topic_id(9)), ErrorCode.UNKNOWN_TOPIC_ID),
        (TopicReference(), ErrorCode.INVALID_REQUEST),
        (TopicReference(name="exists", topic_id=topic_id(1)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_deleted_is_refused_with_kafkas_code(
    reference: TopicReference, code: ErrorCode
) -> None:
    decision = delete(reference)
    assert decision.changes == []
    assert [(each.name, each.topic_id, each.error) for each in decision.outcomes] == [
        (reference.name, reference.topic_id, code)
    ]


@pytest.mark.parametrize(
    "references",
    [
        [TopicReference(name="exists")] * 2,
        [TopicReference(topic_id=topic_id(1))] * 2,
        [TopicReference(name="exists"), TopicReference(topic_id=topic_id(1))],
        [TopicReference(topic_id=topic_id(9))] * 2,
    ],
)
def test_a_topic_named_twice_is_not_deleted(references: list[TopicReference]) -> None:
    decision = delete(*references, TopicReference(name="dotted.name"))
    assert decision.changes == [TopicDeleted("dotted.name", topic_id(2))]
    assert {each.error for each in decision.outcomes[:-1]} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("id_count", [1, 2])
def test_a_topic_named_by_name_and_by_id_is_answered_by_name(id_count: int) -> None:
    by_id = TopicReference(topic_id=topic_id(1))
    decision = delete(*[by_id] * id_count, TopicReference(name="exists"))
    assert decision.changes == []
    assert [(each.name, each.topic_id, each.error) for each in decision.outcomes] == [
        *[(None, topic_id(1), ErrorCode.INVALID_REQUEST)] * (id_count - 1),
        ("exists", topic_id(1), ErrorCode.INVALID_REQUEST),
    ]


def test_a_name_that_is_repeated_does_not_keep_the_id_from_being_deleted() -> None:
    by_name = TopicReference(name="exists")
    decision = delete(by_name, TopicReference(topic_id=topic_id(1)), by_name)
    assert decision.changes == [TopicDeleted("exists", topic_id(1))]
    assert codes(decision) == [
        ("exists", ErrorCode.INVALID_REQUEST),
        ("exists", ErrorCode.NONE),
    ]


def test_a_reference_by_both_does_not_keep_the_id_from_being_deleted() -> None:
    both = TopicReference(name="exists", topic_id=topic_id(1))
    decision = delete(both, TopicReference(topic_id=topic_id(1)))
    assert codes(decision) == [
        ("exists", ErrorCode.INVALID_REQUEST),
        ("exists", ErrorCode.NONE),
    ]


def test_nothing_is_deleted_where_deletion_is_switched_off() -> None:
    decision = delete(TopicReference(name="exists"), TopicReference(name="absent"), enabled=False)
    assert decision.changes == []
    assert {each.error for each in decision.outcomes} == {ErrorCode.TOPIC_DELETION_DISABLED}


def test_outcomes_of_changes_that_were_not_stored_are_failures() -> None:
    decision = create(NewTopic(name="a"), NewTopic(name="exists"))
    failed = decision.failed(ErrorCode.REQUEST_TIMED_OUT, "the disk is full")
    assert failed == [
        TopicOutcome(name="a", error=ErrorCode.REQUEST_TIMED_OUT, message="the disk is full"),
        decision.outcomes[1],
    ]


def test_a_deletion_that_was_not_stored_still_says_which_topic() -> None:
    (failed,) = delete(TopicReference(name="exists")).failed(ErrorCode.REQUEST_TIMED_OUT, "why")
    assert (failed.name, failed.topic_id) == ("exists", topic_id(1))
    assert failed.error is ErrorCode.REQUEST_TIMED_OUT


def test_outcomes_of_a_broker_that_may_not_decide_are_all_refusals() -> None:
    decision = create(NewTopic(name="a"), NewTopic(name="exists"))
    refused = decision.void(ErrorCode.NOT_CONTROLLER, "another is")
    assert [(each.name, each.error) for each in refused] == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("exists", ErrorCode.NOT_CONTROLLER),
    ]
