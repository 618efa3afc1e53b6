"""Who reads a range and names a rack reads from the follower in it, as long as it can (KIP-392)."""

from collections.abc import Iterator

import pytest

from tests.support.clients import NewRecord, send
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers
from tidelog.base.ids import TopicPartition
from tidelog.client.bootstrap import Address, parse_bootstrap
from tidelog.client.leaders import AskedLeaders
from tidelog.client.range_fetcher import READ_COMMITTED, FetchedBatches, FetchLimits, RangeFetcher
from tidelog.config.replication import RACK_AWARE_SELECTOR
from tidelog.pipeline.kafka_settings import reader_settings
from tidelog.pipeline.range_reader import RangeReader, ReadSettings
from tidelog.pipeline.ranges import OffsetRange
from tidelog.records.batch import iter_headers

TOPIC = "near"
LEADER, NEAR, FAR = BROKER_IDS
COUNT = 400
VALUE_BYTES = 15_000
# So that a range takes many answers, and one that does not come is not waited for.
LIMITS = FetchLimits(
    max_bytes=100_000,
    partition_max_bytes=100_000,
    max_wait_ms=100,
    request_timeout_s=5,
    retry_timeout_s=30,
)


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    """Three brokers in a rack each, and a topic that the first of them leads."""
    folder = tmp_path_factory.mktemp("racks")
    cluster = ThreeBrokers(folder, {"replica.selector.class": RACK_AWARE_SELECTOR})
    for node_id, broker in cluster.brokers.items():
        broker.settings["broker.rack"] = f"rack-{node_id}"
    with cluster:
        cluster.create(TOPIC, BROKER_IDS, config={"retention.ms": "-1"})
        cluster.wait_whole(TOPIC)
        records = [
            NewRecord(None, (b"%d" % number).ljust(VALUE_BYTES), 1, ()) for number in range(COUNT)
        ]
        settings = {"acks": "all", "batch.size": "50000"}
        send(cluster.bootstrap, TOPIC, records, partition=0, settings=settings)
        yield cluster


class Asked:
    """Who asks the cluster, and for which brokers it was told where they are."""

    def __init__(self, cluster: ThreeBrokers) -> None:
        self._leaders = AskedLeaders(parse_bootstrap(cluster.bootstrap), {}, timeout_s=10)
        self._ids = {broker.port: number for number, broker in cluster.brokers.items()}
        self.for_brokers: list[int] = []

    def leader_of(self, topic: str, partition: int) -> Address:
        return self._noted(self._leaders.leader_of(topic, partition))

    def address_of(self, broker_id: int) -> Address:
        return self._noted(self._leaders.address_of(broker_id))

    def _noted(self, address: Address) -> Address:
        self.for_brokers.append(self._ids[address.port])
        return address


def reading(asked: Asked, rack: str) -> Iterator[FetchedBatches]:
    return iter(
        RangeFetcher(
            asked,
            TOPIC,
            0,
            start_offset=0,
            end_offset=COUNT,
            isolation_level=READ_COMMITTED,
            limits=LIMITS,
            client_id="test",
            rack=rack,
        )
    )


def offsets(fetched: FetchedBatches) -> list[int]:
    return [
        offset
        for _, header in iter_headers(fetched.records)
        for offset in range(header.base_offset, header.end_offset)
    ]


def test_records_come_from_the_follower_in_the_rack(racks: ThreeBrokers) -> None:
    """Also while the leader does nothing at all."""
    asked = Asked(racks)
    answers = reading(asked, f"rack-{NEAR}")
    found = offsets(next(answers))
    racks.brokers[LEADER].pause()
    try:
        for each in answers:
            found += offsets(each)
    finally:
        racks.brokers[LEADER].resume()
    assert found == [*range(COUNT)]
    assert asked.for_brokers == [LEADER, NEAR]


def test_a_job_says_in_which_rack_it_is(racks: ThreeBrokers) -> None:
    """`kafka.client.rack`. Rows come in several portions, all but the first without the leader."""
    settings = ReadSettings(
        kafka=reader_settings(
            {
                "kafka.bootstrap.servers": racks.bootstrap,
                "kafka.client.rack": f"rack-{NEAR}",
                "kafka.request.timeout.ms": "5000",
                "kafka.fetch.max.bytes": "100000",
                "kafka.max.partition.fetch.bytes": "100000",
            }
        ),
        has_headers=False,
        fails_on_data_loss=True,
        read_timeout_ms=1_000,
    )
    portions = iter(RangeReader(settings, OffsetRange(TopicPartition(TOPIC, 0), 0, COUNT), None))
    found = next(portions).column("offset").to_pylist()
    assert 0 < len(found) < COUNT
    racks.brokers[LEADER].pause()
    try:
        for each in portions:
            found += each.column("offset").to_pylist()
    finally:
        racks.brokers[LEADER].resume()
    assert found == [*range(COUNT)]


@pytest.mark.parametrize("rack", ["", "rack-of-nobody", f"rack-{LEADER}"])
def test_records_come_from_the_leader_otherwise(racks: ThreeBrokers, rack: str) -> None:
    asked = Asked(racks)
    found = [offset for each in reading(asked, rack) for offset in offsets(each)]
    assert found == [*range(COUNT)]
    assert asked.for_brokers == [LEADER]


def test_the_leader_goes_on_where_the_follower_was_killed(racks: ThreeBrokers) -> None:
    asked = Asked(racks)
    answers = reading(asked, f"rack-{FAR}")
    found = offsets(next(answers))
    racks.brokers[FAR].kill()
    for each in answers:
        found += offsets(each)
    assert found == [*range(COUNT)]
    assert asked.for_brokers == [LEADER, FAR, LEADER]
    racks.brokers[FAR].start()
