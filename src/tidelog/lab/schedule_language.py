"""Schedules of faults as sentences, one a line.

    kill leader every 10s for 2m
    pause follower for 5s every 20s 3 times
    at 30s cut leader from clients for 5s
    slow broker 2 by 200ms for 1m         # its way to everybody, from the beginning
    random every 2s 100 times             # any fault to any victim, as the seed has it

    sentence  ::=  ["at" time] what ["for" time] ["every" time ("for" time | N "times")]
    what      ::=  deed victim ["from" others] ["by" time]  |  "random"

`for` before `every` says how long the victim is away; behind it, for how long it goes on. Without
`at` the first time is after one interval, or at the beginning where there is none. Words are those
of `fault_kinds.py`; `#` begins a remark. What is wrong is said in one sentence with its line.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.lab.fault_kinds import (
    DEEDS_TO_SERVERS,
    LASTING,
    NETWORK,
    BrokerNumber,
    Deed,
    Others,
    Role,
    Victim,
)

ANY: Final = "random"
TIMES_MAX: Final = 100_000
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_TIME_MAX_S: Final = 24 * 3600.0
_TWO_WORDS: Final = {role.value.split()[0]: role for role in Role if " " in role}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One line. `deed` and `victim` are None where the seed decides."""

    text: str
    deed: Deed | None
    victim: Victim | None
    others: Others
    delay_s: float
    away_s: float | None
    """None: as long as the seed says."""
    first_at_s: float
    every_s: float
    times: int


def parse_schedule(text: str) -> tuple[Sentence, ...]:
    """The sentences of `text`; ConfigError for the first that is none."""
    sentences = tuple(_sentences(text))
    if not sentences:
        raise ConfigError("the schedule is empty: 'kill leader every 10s for 2m' would be one")
    return sentences


def parse_time(text: str) -> float:
    """Seconds that `500ms`, `10s` or `2m` are; ConfigError for what is no time."""
    matched = _TIME.fullmatch(text)
    if matched is None:
        raise ConfigError(f"'{text}' is no time such as 500ms, 10s or 2m")
    seconds = float(matched[1]) * _UNITS_S[matched[2]]
    if seconds > _TIME_MAX_S:
        raise ConfigError(f"'{text}' is longer than a day")
    return seconds


def _sentences(text: str) -> Iterator[Sentence]:
    for number, line in enumerate(text.splitlines(), start=1):
        said = line.partition("#")[0].strip()
        if said:
            try:
                yield _Words(said).sentence()
            except ConfigError as error:
                raise ConfigError(f"line {number} of the schedule, '{said}': {error}") from None


class _Words:
    """The words of one sentence, taken from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = text.lower().split()

    def sentence(self) -> Sentence:
        at_s = self._time_after("at")
        deed, victim = self._deed_and_victim()
        others = self._others(deed)
        delay_s = self._delay(deed)
        away_s = self._away(deed)
        every_s, times = self._repetition()
        if self._left:
            raise ConfigError(f"'{' '.join(self._left)}' is too much")
        return Sentence(
            text=self._text,
            deed=deed,
            victim=victim,
            others=others,
            delay_s=delay_s,
            away_s=away_s,
            first_at_s=every_s if at_s is None else at_s,
            every_s=every_s,
            times=times,
        )

    # -- parts of a sentence ---------------------------------------------------------------------

    def _deed_and_victim(self) -> tuple[Deed | None, Victim | None]:
        word = self._next("a deed")
        if word == ANY:
            return None, None
        deeds = [deed.value for deed in Deed]
        if word not in deeds:
            raise ConfigError(f"'{word}' is no deed; they are {_listed([*deeds, ANY])}")
        deed, victim = Deed(word), self._victim()
        if victim is Role.ZOOKEEPER_LEADER and deed not in DEEDS_TO_SERVERS:
            raise ConfigError(
                f"a ZooKeeper server can be killed and paused; '{deed}' is for brokers"
            )
        return deed, victim

    def _victim(self) -> Victim:
        word = self._next("a victim")
        if word == "broker":
            number = self._next("the number of a broker")
            if not number.isdecimal():
                raise ConfigError(f"'{number}' is no number of a broker")
            return BrokerNumber(int(number))
        role = _TWO_WORDS.get(word)
        if role is not None:
            self._expect(role.value.split()[1])
            return role
        if word not in {each.value for each in Role}:
            known = [each.value for each in Role]
            raise ConfigError(f"'{word}' is no victim; they are {_listed([*known, 'broker N'])}")
        return Role(word)

    def _others(self, deed: Deed | None) -> Others:
        if not self._take("from"):
            return Others.EVERYBODY
        if deed not in NETWORK:
            raise ConfigError("'from' goes with cut and slow")
        word = self._next("from whom")
        if word not in {each.value for each in Others}:
            raise ConfigError(
                f"one is cut off from {_listed([each.value for each in Others])}, not '{word}'"
            )
        return Others(word)

    def _delay(self, deed: Deed | None) -> float:
        delay_s = self._time_after("by")
        if (delay_s is not None) != (deed is Deed.SLOW):
            raise ConfigError("'by' and a time say how slow: 'slow leader by 200ms'")
        return delay_s or 0.0

    def _away(self, deed: Deed | None) -> float | None:
        away_s = self._time_after("for")
        if away_s is not None and deed is not None and deed not in LASTING:
            raise ConfigError(f"'{deed}' does not last, so there is no 'for' before 'every'")
        return away_s

    def _repetition(self) -> tuple[float, int]:
        every_s = self._time_after("every")
        if every_s is None:
            return 0.0, 1
        if every_s == 0:
            raise ConfigError("'every 0s' has no end")
        during_s = self._time_after("for")
        if during_s is not None:
            return every_s, _bounded(round(during_s / every_s))
        count = self._next("'for' and a time, or how many 'times'")
        if not count.isdecimal():
            raise ConfigError(f"'{count}' is no number of times")
        self._expect("times")
        return every_s, _bounded(int(count))

    # -- words -----------------------------------------------------------------------------------

    def _next(self, what: str) -> str:
        if not self._left:
            raise ConfigError(f"{what} is missing at the end")
        return self._left.pop(0)

    def _take(self, word: str) -> bool:
        if self._left[:1] != [word]:
            return False
        del self._left[0]
        return True

    def _expect(self, word: str) -> None:
        found = self._next(f"'{word}'")
        if found != word:
            raise ConfigError(f"'{found}' stands where '{word}' should")

    def _time_after(self, word: str) -> float | None:
        if not self._take(word):
            return None
        return parse_time(self._next("a time"))


def _bounded(times: int) -> int:
    if not 1 <= times <= TIMES_MAX:
        raise ConfigError(f"it would happen {times} times, not 1 to {TIMES_MAX}")
    return times


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
