"""Two accidents of truncating to the high watermark, step by step, and that epochs prevent them.

Seeds 002 tells of the first, KIP-101 of both. Each is shown to happen on the same brokers with the
old rule planted (`planted.py`), and not to happen without it.

The first, records lost: A leads, B follows, m0 and m1 are acknowledged.

    A  m0 m1   HW 2      B restarts and, by the old      A dies. B is in sync, leads, and has
    B  m0 m1   HW 1      rule, cuts its log to its HW    no m1: it is lost, though acknowledged

The second, logs that differ: both fail at once, and B has lost m1, which was not flushed.

    A  m0 m1   HW 2      B returns first, leads and      A returns and cuts its log to its HW, which
    B  m0      HW 1      writes m2 where m1 was          is 2: the logs are as long and differ
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from random import Random

from tests.simulation.planted import (
    keep_a_broker_in_the_isr_after_a_power_cut,
    overlook_diverged_logs,
    truncate_to_high_watermark,
)
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER

TOPIC = "accident"
CONTROLLER, A, B = 1, 2, 3
LOGS = (A, B)


@contextmanager
def the_old_rule() -> Iterator[None]:
    """Logs are cut to the high watermark and then taken for equal: there are no epochs."""
    with truncate_to_high_watermark(), overlook_diverged_logs():
        yield


@contextmanager
def accident(
    *planted: Callable[[], AbstractContextManager[None]],
) -> Iterator[SimulatedCluster]:
    """m0 is known to be committed on both; m1 is acknowledged, and B does not know that yet."""
    with ExitStack() as bugs:
        cluster = bugs.enter_context(simulated_cluster(3))
        assert cluster.controller().broker_id == CONTROLLER
        cluster.create(TOPIC, (A, B))
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        cluster.until(lambda: high_watermarks(cluster) == [1, 1])
        flush(cluster, B)  # A power cut leaves it m0, and perhaps no more.
        cluster.run_for(6)  # Checkpoints are written.
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        assert ends(cluster) == [2, 2]
        assert high_watermarks(cluster) == [2, 1]
        for bug in planted:
            bugs.enter_context(bug())
        yield cluster


def flush(cluster: SimulatedCluster, number: int) -> None:
    runner = cluster.runner(number, TOPIC)
    assert runner is not None
    runner.log.flush(up_to=runner.log.log_end_offset)


def ends(cluster: SimulatedCluster) -> list[int]:
    return [cluster.end_offset(number, TOPIC) for number in LOGS]


def high_watermarks(cluster: SimulatedCluster) -> list[int]:
    runners = [cluster.runner(number, TOPIC) for number in LOGS]
    return [-1 if runner is None else runner.high_watermark for runner in runners]


def epochs(cluster: SimulatedCluster, number: int) -> list[int]:
    """The epoch in which each batch of a log was written."""
    runner = cluster.runner(number, TOPIC)
    assert runner is not None
    return [header.leader_epoch for header in runner.log.headers_from(runner.log.log_start_offset)]


# -- records lost --------------------------------------------------------------------------------


def b_restarts_then_a_dies(cluster: SimulatedCluster) -> None:
    """B is gone for so short a time that it stays in the isr. It cannot fetch before A dies."""
    cluster.network.cut("coordinator", f"broker-{CONTROLLER}")
    cluster.network.cut_both(f"broker-{A}", f"broker-{B}")
    cluster.brokers[B].kill()
    cluster.brokers[B].start()
    cluster.until(lambda: cluster.brokers[B].is_registered)
    cluster.network.heal("coordinator", f"broker-{CONTROLLER}")
    cluster.until(lambda: cluster.brokers[B].is_ready)
    cluster.until(lambda: follows(cluster, B))
    assert cluster.state(TOPIC).isr == (A, B)
    cluster.run_for(0.05)  # B may cut its log now.
    cluster.brokers[A].kill()
    cluster.network.heal_all()
    cluster.until(lambda: cluster.state(TOPIC).leader == B and cluster.is_led(TOPIC))


def follows(cluster: SimulatedCluster, number: int) -> bool:
    runner = cluster.runner(number, TOPIC)
    return runner is not None and runner.follower is not None


def test_an_acknowledged_record_is_lost_by_truncating_to_the_high_watermark() -> None:
    with accident(the_old_rule) as cluster:
        b_restarts_then_a_dies(cluster)
        assert ends(cluster) == [-1, 1]
        cluster.brokers[A].start()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, A, B))
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        assert epochs(cluster, B) == [0, 1]  # Another record, of another epoch, is where m1 was.


def test_an_acknowledged_record_is_kept_by_epochs() -> None:
    with accident() as cluster:
        b_restarts_then_a_dies(cluster)
        assert ends(cluster) == [-1, 2]
        cluster.brokers[A].start()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, A, B))
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        for number in LOGS:
            assert epochs(cluster, number) == [0, 0, 1]


# -- logs that differ ----------------------------------------------------------------------------


def both_fail_and_b_returns_first(cluster: SimulatedCluster) -> None:
    cluster.run_for(6)  # A writes down that m1 is committed.
    cluster.network.cut("coordinator", f"broker-{CONTROLLER}")  # It sees both gone at once.
    cluster.brokers[A].kill()
    cluster.brokers[B].power_cut(Random(4))  # Which takes m1.
    cluster.coordination.expire_sessions_of(f"broker-{B}")
    cluster.run_for(0.1)
    cluster.network.heal("coordinator", f"broker-{CONTROLLER}")
    cluster.until(lambda: cluster.state(TOPIC).leader == NO_BROKER)
    assert set(cluster.state(TOPIC).isr) == {A, B}
    cluster.brokers[B].start()
    cluster.until(lambda: cluster.brokers[B].is_ready)


def b_writes_then_a_returns(cluster: SimulatedCluster) -> None:
    cluster.until(lambda: cluster.is_led(TOPIC) and cluster.state(TOPIC).leader == B)
    assert ends(cluster) == [-1, 1]
    assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
    cluster.brokers[A].start()
    cluster.until(lambda: cluster.is_at(TOPIC, 0, A, B))


def test_logs_differ_after_truncating_to_the_high_watermark() -> None:
    with accident(the_old_rule, keep_a_broker_in_the_isr_after_a_power_cut) as cluster:
        both_fail_and_b_returns_first(cluster)
        b_writes_then_a_returns(cluster)
        assert ends(cluster) == [2, 2]
        assert epochs(cluster, A) == [0, 0]
        assert epochs(cluster, B) == [0, 2]


def test_logs_are_equal_after_truncating_by_epochs() -> None:
    """m1 is lost all the same if who has lost power may lead; but everybody agrees on that."""
    with accident(keep_a_broker_in_the_isr_after_a_power_cut) as cluster:
        both_fail_and_b_returns_first(cluster)
        b_writes_then_a_returns(cluster)
        assert ends(cluster) == [2, 2]
        for number in LOGS:
            assert epochs(cluster, number) == [0, 2]


def test_nothing_is_lost_if_who_lost_power_does_not_lead() -> None:
    """R13: B waits for A, which has everything."""
    with accident() as cluster:
        both_fail_and_b_returns_first(cluster)
        cluster.run_for(1)
        assert not cluster.is_led(TOPIC)
        cluster.brokers[A].start()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, A, B))
        assert ends(cluster) == [2, 2]
        for number in LOGS:
            assert epochs(cluster, number) == [0, 0]
