"""What a controller knows beside the image: who stops, whose replicas are offline (C5, R9)."""

import pytest

from tests.unit.core.controller.clusters import broker, brokers, cluster, partition, topic
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.broker.broker_channels import Told
from tidelog.broker.controller_view import ControllerView, affected_by
from tidelog.config.topic import TopicConfig
from tidelog.core.controller.changes import PartitionChanged, TopicConfigChanged
from tidelog.core.controller.election import UncleanElection

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))
IMAGE = cluster(
    brokers(1, 2, 3),
    topic("t", 7, partition(1, 2), partition(2, 1), partition(3, 1)),
    topic("u", 8),
    topic_configs={"u": {"unclean.leader.election.enable": "true"}, "t": {"flush.ms": "7"}},
)
DEFAULTS = TopicConfig.resolve({}, TopicConfig())


def told(
    number: int,
    *,
    working: tuple[TopicPartition, ...] = (),
    failed: tuple[TopicPartition, ...] = (),
) -> Told:
    return Told(BrokerId(number), frozenset(working), frozenset(failed))


def live(view: ControllerView, one: TopicPartition) -> set[int]:
    """The brokers whose replica of a partition may lead, or be in sync."""
    return set(view.candidates(IMAGE.brokers, IMAGE, DEFAULTS).fit(one).live)


def test_at_first_every_replica_is_taken_to_work() -> None:
    view = ControllerView()
    assert live(view, T0) == live(view, T1) == {1, 2, 3}
    assert view.candidates(IMAGE.brokers, IMAGE, DEFAULTS).staying == {1, 2, 3}


def test_a_replica_that_failed_is_no_candidate_until_it_works() -> None:
    view = ControllerView()
    view.note_told(told(1, working=(T1,), failed=(T0,)))
    assert (live(view, T0), live(view, T1)) == ({2, 3}, {1, 2, 3})
    view.note_told(told(2, failed=(T0,)))
    assert live(view, T0) == {3}
    view.note_told(told(3, working=(T0,)))  # That says nothing about the others' replicas.
    assert live(view, T0) == {3}
    view.note_told(told(1, working=(T0, T1)))
    view.note_told(told(2, working=(T0,)))
    assert live(view, T0) == {1, 2, 3}


def test_only_what_is_not_known_yet_is_news() -> None:
    view = ControllerView()
    assert not view.is_news(told(1, working=(T0, T1)))
    assert view.is_news(told(1, working=(T0,), failed=(T1,)))
    view.note_told(told(1, working=(T0,), failed=(T1,)))
    assert not view.is_news(told(1, working=(T0,), failed=(T1,)))
    assert view.is_news(told(2, failed=(T1,)))
    assert not view.is_news(told(2, working=(T1,)))
    assert view.is_news(told(1, working=(T0, T1)))


def test_who_is_about_to_stop_does_not_stay() -> None:
    view = ControllerView()
    view.shutting_down[BrokerId(2)] = 1
    assert view.candidates(IMAGE.brokers, IMAGE, DEFAULTS).staying == {1, 3}
    anew = {**IMAGE.brokers, BrokerId(2): broker(2, broker_epoch=9)}
    assert view.candidates(anew, IMAGE, DEFAULTS).staying == {1, 2, 3}


def test_what_was_known_of_a_registration_ends_with_it() -> None:
    for after in ({}, brokers(1, 3), {**IMAGE.brokers, BrokerId(2): broker(2, broker_epoch=9)}):
        view = ControllerView()
        view.shutting_down[BrokerId(2)] = 1
        view.note_told(told(2, failed=(T0, T1)))
        view.note_told(told(3, failed=(T1,)))
        view.forget_brokers(IMAGE.brokers, after)
        assert view.shutting_down == {}
        assert live(view, T0) == {1, 2, 3}
        assert live(view, T1) == ({1, 2} if BrokerId(3) in after else {1, 2, 3})


def test_what_was_known_of_others_stays() -> None:
    view = ControllerView()
    view.shutting_down[BrokerId(2)] = 1
    view.note_told(told(2, failed=(T0,)))
    view.forget_brokers(IMAGE.brokers, brokers(1, 2))
    assert view.shutting_down == {2: 1}
    assert live(view, T0) == {1, 3}


def test_a_new_term_begins_with_nothing() -> None:
    view = ControllerView()
    view.shutting_down[BrokerId(2)] = 1
    view.note_told(told(2, failed=(T0,)))
    view.note_unclean([UncleanElection(T0, BrokerId(2), (BrokerId(1),))])
    view.clear()
    assert view.shutting_down == {}
    assert live(view, T0) == {1, 2, 3}
    assert view.unclean_elections == 1  # A count of this broker's life.


@pytest.mark.parametrize(
    ("default", "topic_name", "expected"),
    [("false", "t", False), ("false", "u", True), ("true", "t", True), ("true", "nobody", True)],
)
def test_whether_an_election_may_be_unclean_is_the_topics_setting_or_the_brokers(
    default: str, topic_name: str, expected: bool
) -> None:
    defaults = TopicConfig.resolve({"unclean.leader.election.enable": default}, TopicConfig())
    candidates = ControllerView().candidates(IMAGE.brokers, IMAGE, defaults)
    assert candidates.allow_unclean(topic_name) == expected


def test_whether_an_election_may_be_unclean_is_known_of_a_topic_that_contradicts_itself() -> None:
    settings = {"unclean.leader.election.enable": "true", "min.compaction.lag.ms": "100"}
    image = IMAGE.apply(TopicConfigChanged("t", settings))
    defaults = TopicConfig(max_compaction_lag_ms=50)
    assert ControllerView().candidates(image.brokers, image, defaults).allow_unclean("t")


def test_a_failed_member_of_an_isr_and_a_replica_nobody_leads_have_consequences() -> None:
    nobody = partition(1, 2, leader=NO_BROKER, isr=(1,), epoch=1)
    image = IMAGE.apply(PartitionChanged("t", 0, nobody))
    gone = TopicPartition("gone", 0)
    assert affected_by(told(1, working=(T1, gone), failed=(gone,)), image) == []
    assert affected_by(told(1, working=(T0,)), image) == [T0]
    assert affected_by(told(1, failed=(T1,)), image) == [T1]
    assert affected_by(told(2, failed=(T0,)), image) == []  # It was not in sync anyway.
