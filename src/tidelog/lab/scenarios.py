"""Schedules of faults that are there already, by name: `tidelog lab run NAME` (B3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.lab.schedule_language import Sentence, parse_schedule


@dataclass(frozen=True, slots=True)
class Scenario:
    """What it shows, and the schedule."""

    purpose: str
    schedule: str


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "leader-killed": Scenario(
        "the leader is killed again and again, and another one leads",
        "kill leader for 3s every 10s for 1m",
    ),
    "hung-leader": Scenario(
        "a leader hangs for longer than its session lasts, and comes back believing it leads",
        "pause leader for 4s every 10s for 1m",
    ),
    "rolling-restart": Scenario(
        "every broker is stopped in good order, one after the other",
        "stop broker 1 for 2s\nat 8s stop broker 2 for 2s\nat 16s stop broker 3 for 2s",
    ),
    "split": Scenario(
        "the leader is cut off from the other brokers, its clients are not",
        "cut leader from others for 6s every 15s 4 times",
    ),
    "slow-network": Scenario(
        "every byte takes 50 ms more, and leaders are killed meanwhile",
        "slow all by 50ms for 40s\nkill leader for 2s every 10s 3 times",
    ),
    "lost-session": Scenario(
        "the coordinator forgets a broker that is well",
        "expire leader every 5s 4 times\nexpire controller every 8s 3 times",
    ),
    "power-cuts": Scenario(
        "brokers come back with the last batch of their logs torn, or a byte of it wrong",
        "at 4s tear leader for 1s\nat 14s corrupt leader for 1s\nat 24s tear follower for 1s",
    ),
    "full-disk": Scenario(
        "no room is left for the leader's logs; needs root, for a disk that may be filled",
        "fill-disk leader for 4s every 12s 3 times",
    ),
    "blackout": Scenario(
        "all brokers are killed at once, and started again",
        "kill all for 2s every 15s 3 times",
    ),
    "coordinators": Scenario(
        "who coordinates groups and transactions is killed, and hangs",
        "kill group coordinator for 2s every 10s 3 times\n"
        "pause transaction coordinator for 4s every 15s 2 times",
    ),
    "anything": Scenario("whatever the seed says", "random every 3s 20 times"),
}


def find_schedule(given: str) -> tuple[Sentence, ...]:
    """The schedule of that name, or in that file, or which these words are themselves."""
    if given in SCENARIOS:
        return parse_schedule(SCENARIOS[given].schedule)
    path = Path(given)
    try:
        is_file = path.is_file()
    except OSError:  # Too long for a name: these are words.
        is_file = False
    if is_file:
        return parse_schedule(path.read_text("utf-8"))
    if " " not in given.strip():
        raise ConfigError(
            f"'{given}' is no scenario, no file and no schedule; scenarios are "
            f"{', '.join(SCENARIOS)}, and 'kill leader every 10s for 2m' would be a schedule"
        )
    return parse_schedule(given)
