"""`max.connection.creation.rate`: a second's worth at once, and then no faster (G5)."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.connection_rate import ConnectionRate


def test_a_seconds_worth_may_come_at_once() -> None:
    rate = ConnectionRate(5)
    assert [rate.take(1_000) for _ in range(5)] == [0.0] * 5
    assert rate.take(1_000) == 200.0
    assert rate.take(1_199) > 0
    assert rate.take(1_200) == 0.0


@given(
    per_second=st.integers(1, 50),
    pauses_ms=st.lists(st.integers(0, 700), min_size=1, max_size=300),
)
def test_never_more_begin_than_the_rate_and_a_seconds_worth(
    per_second: int, pauses_ms: list[int]
) -> None:
    """Over any stretch of time; and who has waited as long as it was told may begin."""
    rate = ConnectionRate(per_second)
    now_ms = 0
    begun: list[int] = []
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        wait_ms = rate.take(now_ms)
        if wait_ms:
            assert wait_ms <= 1_000
        else:
            begun.append(now_ms)
    for first, since_ms in enumerate(begun):
        for count, until_ms in enumerate(begun[first:], start=1):
            assert count <= per_second * (1 + (until_ms - since_ms) / 1_000) + 1e-6
