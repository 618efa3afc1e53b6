"""Which parts of a Spark job, and which brokers, are killed when, as a function of a seed."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# After how many records are through is said by the part; this is for where in a micro-batch.
_DELAY_S: Final = (0.0, 1.5)
_BROKER_EVERY: Final = 5


class Victim(StrEnum):
    """Who is killed."""

    DRIVER = "driver"
    """Python and its JVM: the job is gone."""
    JVM = "JVM of the driver"
    WORKER = "Python worker"
    BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKill:
    """kill -9, `delay_s` after `at_record` records are through. `chosen`: any number."""

    number: int
    victim: Victim
    at_record: int
    delay_s: float
    chosen: int


def plan_kills(seed: int, *, kill_count: int, record_count: int) -> tuple[PlannedKill, ...]:
    """`kill_count` of the job's processes; and brokers in between."""
    chance = random.Random(seed)
    victims: list[Victim] = []
    for number in range(kill_count):
        if number % _BROKER_EVERY == _BROKER_EVERY // 2:
            victims.append(Victim.BROKER)
        victims.append(chance.choice([Victim.DRIVER, Victim.JVM, Victim.WORKER, Victim.WORKER]))
    return tuple(
        PlannedKill(
            number=number,
            victim=victim,
            at_record=record_count * number // (len(victims) + 1),
            delay_s=chance.uniform(*_DELAY_S),
            chosen=chance.randrange(1_000_000),
        )
        for number, victim in enumerate(victims, start=1)
    )
