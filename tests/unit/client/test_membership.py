"""What one broker says about the others, and about a topic."""

from collections.abc import Sequence

import pytest

from tidelog.base.errors import WireError
from tidelog.client.membership import (
    Membership,
    TopicView,
    decode_cluster_view,
    decode_topic_view,
)
from tidelog.client.values import PartitionDescription
from tidelog.wire.metadata import (
    NO_OPERATIONS,
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    encode_metadata_response,
)


def answer(
    broker_ids: list[int], controller_id: int, partitions: Sequence[MetadataPartition]
) -> memoryview:
    brokers = [MetadataBroker(each, f"host-{each}", 9092, None) for each in broker_ids]
    topic = MetadataTopic(0, "demo", bytes(16), False, partitions, NO_OPERATIONS)
    topics = [topic] if partitions else []
    response = MetadataResponse(0, brokers, "cluster", controller_id, topics, NO_OPERATIONS, 0)
    return memoryview(encode_metadata_response(1, 1, response))[4:]


@pytest.mark.parametrize(
    ("controller_id", "known"),
    # One that has died is the controller until there is another; nobody can be asked through it.
    [(2, 2), (-1, None), (3, None)],
)
def test_brokers_and_their_controller_are_read(controller_id: int, known: int | None) -> None:
    membership = Membership(frozenset({1, 2}), known)
    assert decode_topic_view(answer([1, 2], controller_id, [])) == TopicView(membership, ())


def test_partitions_are_read_in_order() -> None:
    offline = MetadataPartition(5, 1, -1, 3, (2, 1), (2,), (2,))
    led = MetadataPartition(0, 0, 1, 4, (1, 2), (1, 2), ())
    view = decode_topic_view(answer([1, 2], 1, [offline, led]))
    assert view.partitions == (
        PartitionDescription(partition=0, leader=1, replicas=(1, 2), isr=(1, 2)),
        PartitionDescription(partition=1, leader=None, replicas=(2, 1), isr=(2,)),
    )


def test_all_topics_are_read_by_their_names() -> None:
    led = MetadataPartition(0, 0, 1, 4, (1, 2), (1, 2), ())
    view = decode_cluster_view(answer([1, 2], 1, [led]))
    described = PartitionDescription(partition=0, leader=1, replicas=(1, 2), isr=(1, 2))
    assert view.partitions == {("demo", 0): described}


def test_answer_that_is_cut_off_is_refused() -> None:
    whole = answer([1, 2], 1, [])
    with pytest.raises(WireError):
        decode_topic_view(whole[: len(whole) // 2])
