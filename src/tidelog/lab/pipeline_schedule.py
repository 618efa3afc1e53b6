"""Which parts of a Spark job, and which brokers, are killed when, as a function of a seed.

Processes of the job come in fours, so that few kills hit all kinds of them; a broker comes amid
each four, and is away while others are killed in two of three cases:

    APART      broker ✗ ── back, in sync ── job ✗
    STARTING   broker ✗ ── job works on ─── job ✗ as the broker is started
    DOWN       broker ✗ ── job works on ─── job ✗ ── begins anew without it ── back, in sync

The next broker is killed only after that one is in sync: of three, never two are down at once.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# After how many records are through is said by the part; this is for where in a micro-batch.
_DELAY_S: Final = (0.0, 1.5)


class Victim(StrEnum):
    """Who is killed."""

    DRIVER = "driver"
    """Python and its JVM: the job is gone."""
    JVM = "JVM of the driver"
    WORKER = "Python worker"
    BROKER = "broker"


class Outage(StrEnum):
    """When a broker that was killed comes back, as seen from the next kill."""

    APART = "apart"
    STARTING = "starting"
    DOWN = "down"


_FOUR: Final = (Victim.DRIVER, Victim.JVM, Victim.WORKER, Victim.WORKER)
_BROKER_BEFORE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKill:
    """kill -9, `delay_s` after `at_record` records are through. `chosen`: any number.

    `outage` is that of a broker, and None of a process of the job.
    """

    number: int
    victim: Victim
    outage: Outage | None
    at_record: int
    delay_s: float
    chosen: int


def plan_kills(seed: int, *, kill_count: int, record_count: int) -> tuple[PlannedKill, ...]:
    """`kill_count` of the job's processes; and brokers in between, each before one of them."""
    chance = random.Random(seed)
    outages: list[Outage] = []
    victims: list[tuple[Victim, Outage | None]] = []
    while kill_count > 0:
        four: list[tuple[Victim, Outage | None]] = [
            (victim, None) for victim in chance.sample(_FOUR, len(_FOUR))[:kill_count]
        ]
        outages = outages or chance.sample(list(Outage), len(Outage))
        if len(four) > _BROKER_BEFORE:
            four.insert(_BROKER_BEFORE, (Victim.BROKER, outages.pop()))
        victims += four
        kill_count -= len(_FOUR)
    return tuple(
        PlannedKill(
            number=number,
            victim=victim,
            outage=outage,
            at_record=record_count * number // (len(victims) + 1),
            delay_s=chance.uniform(*_DELAY_S),
            chosen=chance.randrange(1_000_000),
        )
        for number, (victim, outage) in enumerate(victims, start=1)
    )
