"""How a process ended is said in words."""

import pytest

from tidelog.lab.errors import BrokerDied, exit_text


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-9, "was killed by SIGKILL"),
        (-1000, "was killed by signal 1000"),
    ],
)
def test_end_of_a_process_is_worded(exit_code: int, text: str) -> None:
    assert exit_text(exit_code) == text


def test_reason_that_a_broker_gives_is_told_from_what_it_logs() -> None:
    lines = ("2026-01-01T00:00:00.000Z INFO    x: y", "tidelog broker: no ZooKeeper server at z")
    assert BrokerDied(1, 1, lines).sentence == "no ZooKeeper server at z"
    assert BrokerDied(1, 1, lines[:1]).sentence is None
