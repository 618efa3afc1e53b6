"""The cluster in requests and back: nothing is lost, nothing old counts, nothing wrong is taken."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.histories import History, without_claims
from tests.unit.core.controller.clusters import brokers, cluster, partition, topic
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from tidelog.broker import cluster_messages as messages
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ClientConfigChanged,
    ClusterNamed,
    ControllerChanged,
    GroupConfigChanged,
    PartitionChanged,
    PartitionsAdded,
    ReplicasFailed,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage
from tidelog.wire.api import ApiKey, decode_request_header
from tidelog.wire.cluster_states import ControlHeader, PartitionState, TopicStates
from tidelog.wire.update_metadata import (
    EntityKind,
    EntitySettings,
    UpdateMetadataRequest,
    decode_update_metadata,
    encode_update_metadata_request,
)

HEADER = ControlHeader(1, 5, 9, bytes(16))
SPEAKER = ControllerChanged(BrokerId(1), ControllerEpoch(5))
ONE = cluster(brokers(1, 2), topic("t", 7, partition(1, 2), partition(2, 1)))


def full(image: ClusterImage) -> UpdateMetadataRequest:
    everything = {name: range(len(one.partitions)) for name, one in image.topics.items()}
    return UpdateMetadataRequest(
        HEADER,
        True,
        messages.live_brokers(image),
        messages.topic_states(image, everything),
        messages.entity_settings(image, messages.all_entities(image)),
        [],
        messages.failed_replicas(image, image.failed_replicas),
    )


def news(
    image: ClusterImage,
    *,
    partitions: dict[str, Sequence[int]] | None = None,
    entities: Sequence[tuple[EntityKind, str]] = (),
    deleted: Sequence[bytes] = (),
    failed: Sequence[BrokerId] = (),
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        HEADER,
        False,
        messages.live_brokers(image),
        messages.topic_states(image, partitions or {}),
        messages.entity_settings(image, entities),
        list(deleted),
        messages.failed_replicas(image, failed),
    )


def of_event(after: ClusterImage, changes: Sequence[Change]) -> UpdateMetadataRequest:
    """What has to be said of `changes`, by names."""
    partitions: dict[str, list[int]] = {}
    entities: list[tuple[EntityKind, str]] = []
    deleted: list[bytes] = []
    for change in changes:
        match change:
            case TopicCreated(created, _):
                partitions[created.name] = list(range(len(created.partitions)))
                entities.append((EntityKind.TOPIC, created.name))
            case TopicDeleted(name, topic_id):
                partitions.pop(name, None)
                deleted.append(topic_id.bytes)
            case PartitionsAdded(name, first, added):
                partitions.setdefault(name, []).extend(range(first, first + len(added)))
            case PartitionChanged(name, number, _):
                if number not in partitions.setdefault(name, []):
                    partitions[name].append(number)
            case _:
                entities += _entities(change)
    named = {name: sorted(set(numbers)) for name, numbers in partitions.items()}
    return news(after, partitions=dict(named), entities=entities, deleted=deleted)


def _entities(change: Change) -> list[tuple[EntityKind, str]]:
    """Whose settings `change` is about."""
    match change:
        case TopicConfigChanged(name, _):
            return [(EntityKind.TOPIC, name)]
        case BrokerConfigChanged(broker_id, _):
            return [(EntityKind.BROKER, messages.entity_name(broker_id))]
        case ClientConfigChanged(name, _):
            return [(EntityKind.CLIENT, name)]
        case GroupConfigChanged(name, _):
            return [(EntityKind.GROUP, name)]
    return []


def sent(request: UpdateMetadataRequest) -> UpdateMetadataRequest:
    """As it arrives."""
    frame = encode_update_metadata_request(0, 3, "me", request)
    view = memoryview(frame)[4:]
    header = decode_request_header(view)
    assert header.api_key == ApiKey.UPDATE_METADATA
    return decode_update_metadata(view, header.body_position, header.api_version)


def hear(image: ClusterImage, request: UpdateMetadataRequest) -> ClusterImage:
    return image.apply_all(messages.changes_from(image, sent(request)))


def refusal_of(image: ClusterImage, request: UpdateMetadataRequest) -> ErrorCode:
    with pytest.raises(RequestRefused) as refusal:
        messages.changes_from(image, request)
    return refusal.value.code


# -- round trips ---------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False), st.integers(0, 12), st.integers(0, 12))
def test_whoever_hears_everything_knows_everything(chance: Random, before: int, more: int) -> None:
    """A new broker, and one that has been away for any part of the history."""
    history = History(chance)
    for _ in range(before):
        history.happen()
    earlier = history.image
    for _ in range(more):
        history.happen()
    expected = history.image.apply(SPEAKER)
    for known in (EMPTY_IMAGE.apply(ClusterNamed("cluster")), earlier, history.image, expected):
        assert hear(known, full(history.image)) == expected
    assert messages.changes_from(expected, full(history.image)) == []


@given(st.randoms(use_true_random=False), st.integers(1, 12), st.integers(1, 4))
def test_whoever_hears_every_event_knows_everything(
    chance: Random, count: int, together: int
) -> None:
    """Also where several events are told at once, by their names."""
    history = History(chance)
    known = hear(EMPTY_IMAGE.apply(ClusterNamed("cluster")), full(history.image))
    untold: list[Change] = []
    for number in range(count):
        untold += history.happen()
        if number % together == 0:
            request = of_event(history.image, untold)
            known = hear(known, request)
            untold.clear()
            assert without_claims(known) == without_claims(history.image)
            assert messages.changes_from(known, request) == []  # Told again, it is no news.


def test_the_speaker_is_the_controller() -> None:
    assert messages.changes_from(ONE, news(ONE)) == [SPEAKER]
    assert messages.changes_from(ONE.apply(SPEAKER), news(ONE)) == []


def test_live_brokers_are_all_there_are() -> None:
    assert messages.changes_from(ONE.apply(SPEAKER), news(cluster(brokers(2, 3)))) == [
        BrokerGone(BrokerId(1)),
        BrokerRegistered(brokers(3)[BrokerId(3)]),
    ]
    assert messages.broker_epochs(ONE) == [(1, 1), (2, 1)]


def test_replicas_that_failed_are_told_by_their_brokers() -> None:
    known = ONE.apply(SPEAKER)
    first, second = BrokerId(1), BrokerId(2)
    failed = ReplicasFailed(first, frozenset({TopicPartition("t", 0), TopicPartition("t", 1)}))
    after = known.apply_all([failed, ReplicasFailed(second, frozenset({TopicPartition("t", 0)}))])
    assert hear(known, news(after, failed=[first])) == known.apply(failed)
    assert hear(known, full(after)) == after
    assert hear(after, news(known.apply(failed), failed=[second])) == known.apply(failed)
    assert hear(after, full(known)) == known
    assert messages.changes_from(after, news(after, failed=[first, second])) == []
    assert hear(after, news(after)) == after


# -- what is old ---------------------------------------------------------------------------------


def changed(epoch: int, *, leader_epoch: int = 0) -> ClusterImage:
    newer = replace(
        partition(1, 2, isr=(1,)), partition_epoch=epoch, leader_epoch=LeaderEpoch(leader_epoch)
    )
    return ONE.apply(SPEAKER).apply(PartitionChanged("t", 0, newer))


@pytest.mark.parametrize("is_full", [False, True])
def test_an_older_state_of_a_partition_is_no_news(is_full: bool) -> None:
    known = changed(5, leader_epoch=3)
    for older in (changed(4, leader_epoch=3), changed(5, leader_epoch=3), changed(9)):
        request = full(older) if is_full else news(older, partitions={"t": [0, 1]})
        assert messages.changes_from(known, request) == []


def test_states_of_topics_that_are_gone_are_left_out() -> None:
    assert messages.topic_states(ONE, {"gone": [0], "t": [1]}) == [
        TopicStates("t", UUID(int=7).bytes, [PartitionState(1, 2, 0, 0, (2, 1), (2, 1), (), ())])
    ]


def test_a_topic_that_was_made_again_is_another_one() -> None:
    again = cluster(brokers(1, 2), topic("t", 8, partition(1)))
    known = ONE.apply(SPEAKER)
    request = news(again, partitions={"t": [0]}, deleted=[UUID(int=7).bytes])
    assert hear(known, request).topics == again.topics
    assert hear(known, full(again)).topics == again.topics


def test_a_deletion_of_what_nobody_knows_is_no_news() -> None:
    assert messages.changes_from(ONE.apply(SPEAKER), news(ONE, deleted=[bytes(16)])) == []


def test_settings_of_a_topic_that_is_not_there_are_passed_over() -> None:
    request = news(ONE)._replace(
        settings=[EntitySettings(EntityKind.TOPIC, "gone", [("flush.ms", "1")])]
    )
    assert messages.changes_from(ONE.apply(SPEAKER), request) == []


# -- what is wrong -------------------------------------------------------------------------------


def state(number: int) -> PartitionState:
    return PartitionState(number, 1, 0, 9, (1, 2), (1,), (), ())


@pytest.mark.parametrize("numbers", [[3], [0, 3], [2, 4], [-1]])
def test_partitions_that_cannot_follow_are_refused(numbers: list[int]) -> None:
    """Something was missed: the controller tells everything then."""
    topics = [TopicStates("t", UUID(int=7).bytes, [state(each) for each in numbers])]
    assert refusal_of(ONE, news(ONE)._replace(topics=topics)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("numbers", [[1], [0, 2], [1, 0], [-1, 0]])
def test_a_new_topic_with_gaps_is_refused(numbers: list[int], is_full: bool) -> None:
    topics = [TopicStates("new", UUID(int=8).bytes, [state(each) for each in numbers])]
    request = news(ONE)._replace(topics=topics, is_full=is_full)
    assert refusal_of(ONE, request) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("replicas", "isr"), [((), ()), ((1, 1), (1,)), ((1, 2), (3,))])
def test_a_state_that_no_controller_can_have_written_is_refused(
    replicas: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    wrong = state(0)._replace(replicas=replicas, isr=isr)
    topics = [TopicStates("t", UUID(int=7).bytes, [wrong])]
    assert refusal_of(ONE, news(ONE)._replace(topics=topics)) is ErrorCode.INVALID_REQUEST
    with pytest.raises(RequestRefused):
        dict(messages.partitions_of(topics))


@pytest.mark.parametrize(
    "entity",
    [
        EntitySettings(9, "t", []),
        EntitySettings(EntityKind.BROKER, "one", []),
        EntitySettings(EntityKind.BROKER, "1" * 11, []),
    ],
)
@pytest.mark.parametrize("is_full", [False, True])
def test_settings_of_nothing_are_refused(entity: EntitySettings, is_full: bool) -> None:
    request = news(ONE)._replace(settings=[entity], is_full=is_full)
    assert refusal_of(ONE, request) is ErrorCode.INVALID_REQUEST


def test_roles_are_read_by_partition() -> None:
    topics = messages.topic_states(ONE, {"t": [1, 0]})
    found = dict(messages.partitions_of(topics))
    assert {one: image for one, (_, image) in found.items()} == {
        TopicPartition("t", 0): partition(1, 2),
        TopicPartition("t", 1): partition(2, 1),
    }
    assert {topic_id for topic_id, _ in found.values()} == {ONE.topics["t"].topic_id}
