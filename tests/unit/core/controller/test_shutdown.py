"""A broker that is about to stop hands over first (C5)."""

from dataclasses import replace

import pytest

from tests.unit.core.controller.clusters import brokers, cluster, known, partition, topic
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.shutdown import Shutdown, controlled_shutdown

LIVE = brokers(1, 2, 3)


def stop(image: ClusterImage, *, broker_epoch: int = 1, others: tuple[int, ...] = ()) -> Shutdown:
    return controlled_shutdown(
        image,
        known(LIVE, stopping=others),
        broker_id=BrokerId(1),
        broker_epoch=broker_epoch,
    )


def test_leaderships_and_places_in_isrs_are_handed_over_in_one_batch() -> None:
    image = cluster(
        LIVE,
        topic(
            "t",
            1,
            partition(1, 2, 3),
            partition(2, 1),
            partition(2, 3),
            partition(1, 2, isr=(1,)),
            partition(1),
            partition(2, 1, isr=(2,)),
        ),
    )
    given_up = stop(image)
    assert given_up.changes == [
        PartitionChanged("t", 0, partition(1, 2, 3, leader=2, isr=(2, 3), epoch=1)),
        PartitionChanged("t", 1, replace(partition(2, 1, isr=(2,)), partition_epoch=1)),
    ]
    assert given_up.remaining == [TopicPartition("t", 3)]
    assert stop(image.apply_all(given_up.changes)) == replace(given_up, changes=[])


def test_what_only_brokers_that_stop_have_stays_where_it_is() -> None:
    image = cluster(LIVE, topic("t", 1, partition(1, 2)))
    assert stop(image, others=(2,)) == Shutdown([], [], [TopicPartition("t", 0)])


def test_a_registration_that_is_gone_cannot_stop() -> None:
    with pytest.raises(RequestRefused) as refusal:
        stop(cluster(LIVE), broker_epoch=2)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
