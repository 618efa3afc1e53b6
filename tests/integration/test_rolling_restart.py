"""Every broker is restarted, one after the other, and producers do not notice (C5).

With acks=all and retries no record is given up and none is refused for good; leaders are handed
over before a broker stops, so nobody waits for a session to end.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.support.confluent import only
from tests.support.server_process import wait_until
from tests.support.three_brokers import BROKER_IDS, WAIT_TIMEOUT_S, ThreeBrokers
from tests.support.zookeeper import start_servers
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_topic
from tidelog.lab.verdict import judge
from tidelog.lab.workload import CAREFUL, Workload

TOPIC = "demo"
PARTITION_COUNT = 6
RECORDS_BETWEEN_RESTARTS = 500
# Far less than a session of ZooKeeper's lasts; what it takes is a hand-over and a client that asks.
LONGEST_GAP_S = 12.0


@pytest.fixture
def sqlite_cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def zookeeper_cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    servers = start_servers(tmp_path / "zookeeper", server_count=1)
    with ThreeBrokers(tmp_path, coordination=f"zookeeper:{servers.hosts}/tidelog") as cluster:
        yield cluster
    servers.stop()


def is_in_sync(cluster: ThreeBrokers) -> bool:
    """Whether every broker says so."""
    for broker in cluster.brokers.values():
        try:
            view = ask_topic(Address("127.0.0.1", broker.port), TOPIC, timeout_s=5)
        except ClientError:
            return False
        if len(view.partitions) < PARTITION_COUNT or any(
            len(each.isr) < len(BROKER_IDS) for each in view.partitions
        ):
            return False
    return True


def wait_in_sync(cluster: ThreeBrokers) -> None:
    wait_until(lambda: is_in_sync(cluster), within_s=WAIT_TIMEOUT_S, what="all are in sync")


def wait_for_more(workload: Workload) -> None:
    enough = workload.acknowledgements.count + RECORDS_BETWEEN_RESTARTS
    wait_until(
        lambda: workload.acknowledgements.count >= enough,
        within_s=WAIT_TIMEOUT_S,
        what="more records are acknowledged",
    )


@pytest.mark.parametrize("coordination", ["sqlite", "zookeeper"])
def test_rolling_restart_costs_no_record_and_no_error(
    coordination: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    cluster: ThreeBrokers = request.getfixturevalue(f"{coordination}_cluster")
    admin = cluster.admin()
    new_topic = NewTopic(
        TOPIC, PARTITION_COUNT, len(BROKER_IDS), config={"min.insync.replicas": "2"}
    )
    only(admin.create_topics([new_topic]))
    wait_in_sync(cluster)
    workload = Workload(
        cluster.bootstrap,
        TOPIC,
        partition_count=PARTITION_COUNT,
        producers_per_partition=2,
        consumers=1,
        ledger_folder=tmp_path,
        care=CAREFUL,
    )
    workload.start()
    try:
        for broker in cluster.brokers.values():
            wait_for_more(workload)
            assert broker.stop() == 0
            broker.start()
            wait_in_sync(cluster)
        wait_for_more(workload)
        unacknowledged_count = workload.stop_producing(within_s=WAIT_TIMEOUT_S)
        wait_until(
            lambda: consumed_count(workload) >= workload.acknowledgements.count,
            within_s=WAIT_TIMEOUT_S,
            what="everything is read",
        )
    finally:
        workload.stop_producing(within_s=0)
        workload.stop_consuming()
    assert unacknowledged_count == 0
    assert not workload.failures
    (consumer,) = workload.consumers
    assert not consumer.anomalies
    for partition in range(PARTITION_COUNT):
        verdict = judge(
            partition,
            stored=list(consumer.records[partition]),
            acknowledged=workload.acknowledged_offsets(partition),
            consumed=[],
            difference=None,
        )
        assert verdict.is_good, verdict
    longest_s = max((gap.length_s for gap in workload.acknowledgements.gaps), default=0.0)
    with capsys.disabled():
        print(  # noqa: T201
            f"\nrolling restart on {coordination}: {workload.sent_count:,} records, longest time "
            f"without an acknowledgement {1_000 * longest_s:.0f} ms"
        )
    assert longest_s < LONGEST_GAP_S


def consumed_count(workload: Workload) -> int:
    return sum(map(len, workload.consumers[0].records))
