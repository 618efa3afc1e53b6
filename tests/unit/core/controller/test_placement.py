"""Replicas go round brokers and racks (R11)."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.controller.clusters import broker, brokers, ids
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.core.controller.image import BrokerImage
from tidelog.core.controller.placement import (
    Replicas,
    place,
    require_valid,
    start_after,
)


def placed(
    live: dict[BrokerId, BrokerImage],
    partition_count: int,
    replication_factor: int,
    *,
    first_partition: int = 0,
    start_index: int = 0,
    shift: int = 0,
) -> tuple[Replicas, ...]:
    return place(
        live,
        partition_count=partition_count,
        replication_factor=replication_factor,
        first_partition=first_partition,
        start_index=start_index,
        shift=shift,
    )


def test_the_example_of_kafkas_documentation() -> None:
    assert placed(brokers(0, 1, 2, 3, 4), 10, 3) == (
        ids(0, 1, 2), ids(1, 2, 3), ids(2, 3, 4), ids(3, 4, 0), ids(4, 0, 1),
        ids(0, 2, 3), ids(1, 3, 4), ids(2, 4, 0), ids(3, 0, 1), ids(4, 1, 2),
    )  # fmt: skip


def test_the_example_with_racks_alternates_them() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "b", 4: "c", 5: "a"}
    live = {BrokerId(number): broker(number, rack=rack) for number, rack in racks.items()}
    assert placed(live, 7, 3) == (
        ids(0, 1, 2), ids(1, 2, 5), ids(2, 5, 3), ids(5, 3, 4), ids(3, 4, 0), ids(4, 0, 1),
        ids(0, 3, 4),
    )  # fmt: skip


def test_one_broker_holds_everything() -> None:
    assert placed(brokers(7), 3, 1) == (ids(7),) * 3


def test_more_replicas_than_live_brokers_are_refused() -> None:
    with pytest.raises(RequestRefused) as refusal:
        placed(brokers(1, 2), 1, 3)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


clusters = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        st.lists(st.sampled_from(["a", "b", "c", None]), min_size=count, max_size=count),
        st.integers(1, count),
        st.integers(0, 20),
        st.integers(0, 20),
        st.integers(0, 30),
    )
)


@given(clusters)
def test_no_broker_holds_two_replicas_of_a_partition(
    drawn: tuple[list[str | None], int, int, int, int],
) -> None:
    racks, replication_factor, start_index, shift, first_partition = drawn
    live = {BrokerId(number): broker(number, rack=rack) for number, rack in enumerate(racks)}
    for replicas in placed(
        live,
        12,
        replication_factor,
        first_partition=first_partition,
        start_index=start_index,
        shift=shift,
    ):
        assert len(set(replicas)) == len(replicas) == replication_factor


@given(clusters)
def test_leaders_are_balanced(drawn: tuple[list[str | None], int, int, int, int]) -> None:
    racks, replication_factor, start_index, shift, _first = drawn
    live = {BrokerId(number): broker(number, rack=rack) for number, rack in enumerate(racks)}
    assigned = placed(live, 3 * len(live), replication_factor, start_index=start_index, shift=shift)
    assert Counter(replicas[0] for replicas in assigned) == dict.fromkeys(live, 3)


@given(
    st.lists(st.sampled_from("aaaabbcde"), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 30),
)
def test_replicas_are_in_as_many_racks_as_there_are_however_uneven(
    racks: list[str], replication_factor: int, start_index: int, shift: int, first_partition: int
) -> None:
    live = {BrokerId(number): broker(number, rack=rack) for number, rack in enumerate(racks)}
    replication_factor = min(replication_factor, len(live))
    for replicas in placed(
        live,
        3 * len(live),
        replication_factor,
        first_partition=first_partition,
        start_index=start_index,
        shift=shift,
    ):
        assert len(set(replicas)) == replication_factor
        expected = min(replication_factor, len(set(racks)))
        assert len({live[each].rack for each in replicas}) == expected


def test_a_cluster_in_which_one_broker_has_no_rack_ignores_racks() -> None:
    live = {**brokers(0, 1), BrokerId(2): broker(2, rack="a")}
    assert placed(live, 3, 2) == (ids(0, 1), ids(1, 2), ids(2, 0))


def test_a_topic_that_grows_goes_on_where_it_stopped() -> None:
    live = brokers(0, 1, 2)
    whole = placed(live, 7, 2, start_index=1, shift=1)
    start = start_after(live, whole[0][0])
    assert start == 1
    grown = placed(live, 4, 2, first_partition=3, start_index=start, shift=start)
    assert [replicas[0] for replicas in grown] == [replicas[0] for replicas in whole[3:]]


@given(
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 8),
    st.integers(1, 12),
    st.lists(st.integers(1, 5), max_size=4),
)
def test_leaders_of_a_topic_that_grows_step_by_step_are_those_of_one_made_at_once(
    broker_count: int, replication_factor: int, start: int, first_count: int, steps: list[int]
) -> None:
    live = brokers(*range(broker_count))
    replication_factor = min(replication_factor, broker_count)
    start %= broker_count
    grown = list(placed(live, first_count, replication_factor, start_index=start, shift=start))
    for step in steps:
        index = start_after(live, grown[0][0])
        grown += placed(
            live,
            step,
            replication_factor,
            first_partition=len(grown),
            start_index=index,
            shift=index,
        )
    whole = placed(live, len(grown), replication_factor, start_index=start, shift=start)
    assert [replicas[0] for replicas in grown] == [replicas[0] for replicas in whole]


@pytest.mark.parametrize(("gone", "index"), [(9, 0), (1, 1), (-1, 0)])
def test_a_topic_whose_first_leader_is_gone_grows_from_the_next_broker(
    gone: int, index: int
) -> None:
    assert start_after(brokers(0, 2, 3), BrokerId(gone)) == index


def test_with_racks_the_next_broker_is_where_it_stands_in_the_line() -> None:
    racks = {0: "a", 1: "a", 3: "b"}
    live = {BrokerId(number): broker(number, rack=rack) for number, rack in racks.items()}
    assert start_after(live, BrokerId(2)) == 1
    assert start_after(live, BrokerId(1)) == 2


@pytest.mark.parametrize(
    ("replicas", "replication_factor"),
    [(ids(), None), (ids(9), None), (ids(1, 1), None), (ids(1), 2), (ids(1, 2), 1)],
)
def test_a_wrong_assignment_is_refused(replicas: Replicas, replication_factor: int | None) -> None:
    with pytest.raises(RequestRefused) as refusal:
        require_valid(
            replicas, brokers(1, 2), set(ids(1, 2)), replication_factor=replication_factor
        )
    assert refusal.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_right_assignment_is_taken() -> None:
    require_valid(ids(2, 1), brokers(1, 2), set(ids(1)), replication_factor=2)
    require_valid(ids(2), brokers(1, 2), set(ids(2)), replication_factor=None)


def test_an_assignment_to_brokers_that_stop_is_refused() -> None:
    with pytest.raises(RequestRefused) as refusal:
        require_valid(ids(2), brokers(1, 2), set(ids(1)), replication_factor=None)
    assert refusal.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
