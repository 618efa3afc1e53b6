"""Replication quotas: who is throttled and how fast bytes have been going (KIP-73)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import BrokerId
from tidelog.config.topic import TOPIC_SETTINGS
from tidelog.core.quota import SAMPLE_COUNT, SAMPLE_MS, RateMeter, ThrottledReplicas


def throttled(text: str) -> ThrottledReplicas:
    setting = TOPIC_SETTINGS["leader.replication.throttled.replicas"]
    return ThrottledReplicas.parse(setting.parse(text))


def meter(limit: int = 100) -> RateMeter:
    return RateMeter(limit_bytes_per_s=limit, sample_count=SAMPLE_COUNT, sample_ms=SAMPLE_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("0:1", [(0, 1)]),
        ("0:1, 1:2,10:1", [(0, 1), (1, 2), (10, 1)]),
        ("*", [(partition, broker) for partition in (0, 1, 10) for broker in (1, 2)]),
    ],
)
def test_a_topic_names_the_replicas_that_are_throttled(
    text: str, expected: list[tuple[int, int]]
) -> None:
    found = throttled(text)
    for partition in (0, 1, 10):
        for broker in (1, 2):
            assert found.contains(partition, BrokerId(broker)) == ((partition, broker) in expected)


def test_nothing_recorded_is_no_rate() -> None:
    assert meter().rate(5) == 0
    assert not meter(0).is_exceeded(5)


def test_a_meter_that_has_just_begun_counts_a_whole_sample() -> None:
    fresh = meter()
    fresh.record(100, now_ms=5)
    assert fresh.rate(5) == 100
    assert not fresh.is_exceeded(5)
    fresh.record(1, now_ms=6)
    assert fresh.is_exceeded(6)


def test_a_burst_is_spread_over_time_and_then_forgotten() -> None:
    burst = meter()
    burst.record(1_000, now_ms=0)
    assert burst.rate(5_000) == 200
    assert burst.is_exceeded(9_999)
    assert not burst.is_exceeded(10_000)
    assert burst.rate(SAMPLE_COUNT * SAMPLE_MS) == 0


def test_another_limit_holds_at_once() -> None:
    limited = meter()
    limited.record(101, now_ms=0)
    assert limited.is_exceeded(0)
    limited.limit_bytes_per_s = 101
    assert not limited.is_exceeded(0)


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 1_000)), max_size=60))
def test_the_rate_is_what_recent_samples_hold_over_their_time(
    records: list[tuple[int, int]],
) -> None:
    measured, now_ms, history = meter(), 0, []
    for elapsed_ms, size_bytes in records:
        now_ms += elapsed_ms
        measured.record(size_bytes, now_ms)
        history.append((now_ms, size_bytes))
        window_ms = SAMPLE_COUNT * SAMPLE_MS
        # A sample is forgotten as a whole, so one more sample is what can be counted or not.
        most = sum(size for at_ms, size in history if at_ms > now_ms - window_ms)
        assert measured.rate(now_ms) <= most / (SAMPLE_MS / 1_000)
        assert measured.rate(now_ms) * (window_ms / 1_000) >= sum(
            size for at_ms, size in history if at_ms > now_ms - window_ms + SAMPLE_MS
        ) * (1 - 1e-9)


@given(st.integers(1, 10_000), st.integers(1, 400))
def test_a_steady_flow_has_its_own_rate(size_bytes: int, interval_ms: int) -> None:
    steady = meter()
    for now_ms in range(0, 30_000, interval_ms):
        steady.record(size_bytes, now_ms)
    expected = 1_000 * size_bytes / interval_ms
    assert expected * 0.85 <= steady.rate(now_ms) <= expected * 1.15
