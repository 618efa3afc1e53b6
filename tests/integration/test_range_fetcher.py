"""A range of a partition is read as batches, whichever broker leads it meanwhile (X1)."""

from dataclasses import replace

import pytest

from tests.support.clients import delete_records
from tidelog.client import Producer
from tidelog.client.bootstrap import Address, parse_bootstrap
from tidelog.client.errors import ClientError
from tidelog.client.leaders import AskedLeaders
from tidelog.client.range_fetcher import (
    READ_UNCOMMITTED,
    FetchedBatches,
    FetchLimits,
    OffsetGone,
    RangeFetcher,
    TopicGone,
)
from tidelog.records.batch import iter_headers
from tidelog.records.record import decode_records
from tidelog.testing import Cluster

RECORD_COUNT = 3_000
# So that a range takes many answers.
SMALL = FetchLimits(
    max_bytes=20_000,
    partition_max_bytes=20_000,
    max_wait_ms=100,
    request_timeout_s=10,
    retry_timeout_s=30,
)


class ClusterLeaders:
    """Asks the cluster each time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def leader_of(self, topic: str, partition: int) -> Address:
        leader = self._cluster.leader_of(topic, partition)
        return self.address_of(leader)

    def address_of(self, broker_id: int) -> Address:
        (address,) = parse_bootstrap(self._cluster.address_of(broker_id))
        return address


@pytest.fixture
def topic(tidelog_cluster: Cluster) -> str:
    name = tidelog_cluster.create_topic(placement=[[1, 2, 3]])
    with Producer(
        tidelog_cluster.bootstrap, producer_type="async", queue_buffering_max_ms=5
    ) as producer:
        for number in range(RECORD_COUNT):
            producer.send(name, b"%d" % number, partition=0)
    return name


def fetcher(
    cluster: Cluster, topic: str, start: int, end: int, limits: FetchLimits = SMALL
) -> RangeFetcher:
    return RangeFetcher(
        ClusterLeaders(cluster),
        topic,
        0,
        start_offset=start,
        end_offset=end,
        isolation_level=READ_UNCOMMITTED,
        limits=limits,
        client_id="test",
        rack="",
    )


def values(fetched: FetchedBatches) -> dict[int, bytes | None]:
    return {
        record.offset: record.value
        for position, header in iter_headers(fetched.records)
        for record in decode_records(fetched.records[position : position + header.size_bytes])
    }


def expected(start: int, end: int) -> dict[int, bytes | None]:
    return {number: b"%d" % number for number in range(start, end)}


def within(found: dict[int, bytes | None], start: int, end: int) -> dict[int, bytes | None]:
    """Without what is in the first and last batch beside the range."""
    return {offset: value for offset, value in found.items() if start <= offset < end}


def test_every_record_of_a_range_is_fetched(tidelog_cluster: Cluster, topic: str) -> None:
    found: dict[int, bytes | None] = {}
    answers = 0
    for fetched in fetcher(tidelog_cluster, topic, 17, 2_000):
        found |= values(fetched)
        answers += 1
    assert answers > 1
    assert within(found, 17, 2_000) == expected(17, 2_000)


def test_next_leader_goes_on_where_the_last_one_was_killed(
    tidelog_cluster: Cluster, topic: str
) -> None:
    leader = tidelog_cluster.leader_of(topic)
    reading = iter(fetcher(tidelog_cluster, topic, 0, RECORD_COUNT))
    found = values(next(reading))
    tidelog_cluster.kill_broker(leader)
    for fetched in reading:
        found |= values(fetched)
    assert found == expected(0, RECORD_COUNT)


def test_offset_that_is_gone_is_said(tidelog_cluster: Cluster, topic: str) -> None:
    delete_records(tidelog_cluster.bootstrap, topic, 0, 1_000)
    with pytest.raises(OffsetGone, match=f"{topic}-0 does not have offset 5") as gone:
        next(iter(fetcher(tidelog_cluster, topic, 5, 2_000)))
    assert gone.value.offset == 5


def test_topic_that_is_gone_is_said_by_its_name(tidelog_cluster: Cluster) -> None:
    leaders = AskedLeaders(parse_bootstrap(tidelog_cluster.bootstrap), {}, timeout_s=10)
    reading = RangeFetcher(
        leaders,
        "nowhere",
        0,
        start_offset=0,
        end_offset=5,
        isolation_level=READ_UNCOMMITTED,
        limits=replace(SMALL, retry_timeout_s=0.2),
        client_id="test",
        rack="",
    )
    with pytest.raises(TopicGone, match="there is no topic nowhere"):
        next(iter(reading))


def test_what_is_not_written_yet_is_not_waited_for_without_end(
    tidelog_cluster: Cluster, topic: str
) -> None:
    limits = replace(SMALL, max_wait_ms=10, retry_timeout_s=0.2)
    reading = iter(fetcher(tidelog_cluster, topic, RECORD_COUNT, RECORD_COUNT + 1, limits))
    with pytest.raises(ClientError, match=f"{topic}-0 could not be read at {RECORD_COUNT}"):
        next(reading)
