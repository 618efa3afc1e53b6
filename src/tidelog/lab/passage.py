"""The passage of records from a topic to wherever somebody brings them, under faults (B3).

    input fed ──▶ somebody brings it to an outcome ──▶ all of it is through ──▶ judged
        ▲              ▲ what is planned happens when its part is through
        └─ part by part, so that there is work to do whenever something happens

Who brings the records, what is done to them and to the brokers meanwhile, and where the outcome is
found, say `exactly_once.py` and `pipeline_run.py`. Each partition of the outcome must hold what was
made of the same partition of the input: every record once, in order.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

from confluent_kafka import Consumer, TopicPartition

from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.exactly_once_verdict import TransformVerdict, judge_transform
from tidelog.lab.input_feed import InputFeed, value_of

INPUT: Final = "input"
OUTPUT: Final = "output"
_READ_WITHIN_S: Final = 60.0
_LOOK_INTERVAL_S: Final = 0.1


class Planned(Protocol):
    """Something that happens when `at_record` records are through."""

    @property
    def at_record(self) -> int: ...


PlannedT = TypeVar("PlannedT", bound=Planned)
FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how far it is, and may have had enough."""

    on_progress: Callable[[str, int], None]
    """What is being done, and how many records are through."""
    is_cancelled: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Bearers:
    """Who brings the records."""

    revive: Callable[[], None]
    """Start again who has ended; called again and again."""
    count_through: Callable[[], int]
    """How many records have been brought; 0 if nobody who knows answers at the moment."""
    stalled_after_s: float
    """So long without any more is the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassagePlan:
    """How much goes through what, and the file in `folder` that says what happened to it."""

    folder: Path
    history_name: str
    record_count: int
    partition_count: int
    replication_factor: int
    topic_settings: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class PassageOutcome:
    """What became of it all."""

    happened: list[str] = field(default_factory=list)
    verdicts: list[TransformVerdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    took_s: float = 0.0
    longest_silence_s: float = 0.0
    """The longest time in which nothing more was through; while something is away nobody looks."""
    silent_at: str = ""
    """What was done to whom then."""

    @property
    def is_good(self) -> bool:
        return not self.problems and all(verdict.is_good for verdict in self.verdicts)


class Passage:
    """Happens once. `outcome` is filled in on the way; what failed in `watched()` is in it too."""

    def __init__(
        self, plan: PassagePlan, bootstrap: str, watcher: Watcher, outcome: PassageOutcome
    ) -> None:
        self._plan = plan
        self._bootstrap = bootstrap
        self._watcher = watcher
        self._outcome = outcome
        self._through = 0
        self._progressed_at = time.monotonic()
        self.doing = "starting"
        """What is to be named if it fails."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What goes wrong inside is a problem of the outcome; to have had enough is none."""
        began_at = time.monotonic()
        try:
            yield
        except StartCancelled:
            raise
        except (LabError, ClientError) as error:
            self._outcome.problems.append(f"{self.doing}: {error}")
        finally:
            self._outcome.took_s = time.monotonic() - began_at

    def create_topics(self) -> None:
        with Admin(self._bootstrap) as admin:
            for topic in (INPUT, OUTPUT):
                admin.create_topic(
                    topic,
                    partitions=self._plan.partition_count,
                    replication_factor=self._plan.replication_factor,
                    configs=self._plan.topic_settings,
                )

    def run(
        self, planned: Sequence[PlannedT], happen: Callable[[PlannedT], None], bearers: Bearers
    ) -> None:
        """The n-th happens when the n-th part is through, and the next one is there."""
        ends = [*(each.at_record for each in planned), self._plan.record_count]
        with InputFeed(self._bootstrap, INPUT, self._plan.partition_count) as feed:
            feed.send_until(ends[0])
            for each, next_end in zip(planned, ends[1:], strict=True):
                self._wait_until_through(each.at_record, bearers)
                feed.send_until(next_end)
                happen(each)
            self.doing = "after the last fault"
            self._wait_until_through(self._plan.record_count, bearers)

    def judge(
        self, *, made_of: Callable[[bytes], bytes], found_in: Callable[[int], Sequence[bytes]]
    ) -> None:
        """`made_of` a value of the input is what `found_in` a partition should have."""
        self.tell("reading what came of it")
        count = self._plan.partition_count
        self._outcome.verdicts = [
            judge_transform(
                partition,
                expected=[
                    made_of(value_of(number))
                    for number in range(partition, self._plan.record_count, count)
                ],
                found=found_in(partition),
            )
            for partition in range(count)
        ]

    def note(self, number: int, what: str) -> None:
        """The n-th of what is planned happens now."""
        line = f"{what}, at {self._through:,} records"
        self._outcome.happened.append(line)
        history = self._plan.folder / self._plan.history_name
        with history.open("a", encoding="utf-8") as file:
            file.write(f"{number:4} {line}\n")
        self.tell(line)

    def tell(self, doing: str) -> None:
        self._watcher.on_progress(doing, self._through)

    def pass_time(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            if self._watcher.is_cancelled():
                raise StartCancelled("not all records are through yet")
            time.sleep(min(left_s, _LOOK_INTERVAL_S))

    def wait_for(self, look: Callable[[], FoundT | None], what: str, *, within_s: float) -> FoundT:
        """What `look` finds in the end. LabError if that takes too long."""
        give_up_at = time.monotonic() + within_s
        while (found := look()) is None:
            if time.monotonic() >= give_up_at:
                raise LabError(f"there is no {what} after {within_s:g} s")
            self.pass_time(_LOOK_INTERVAL_S)
        return found

    def _wait_until_through(self, count: int, bearers: Bearers) -> None:
        give_up_at = time.monotonic() + bearers.stalled_after_s
        while self._through < count:
            bearers.revive()
            if self._look(bearers):
                give_up_at = time.monotonic() + bearers.stalled_after_s
            elif time.monotonic() >= give_up_at:
                raise LabError(
                    f"{self._through:,} are through, and no more for {bearers.stalled_after_s:g} s"
                )
            self.pass_time(_LOOK_INTERVAL_S)

    def _look(self, bearers: Bearers) -> bool:
        """Whether more is through than before."""
        through = bearers.count_through()
        self.tell("working")
        now = time.monotonic()
        silence_s = now - self._progressed_at
        if self._through and silence_s > self._outcome.longest_silence_s:
            self._outcome.longest_silence_s = silence_s
            self._outcome.silent_at = self.doing
        if through <= self._through:
            return False
        self._through = through
        self._progressed_at = now
        return True


def read_committed(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """Everything that was committed in a partition in which nothing is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # What is missing at the start is lost; what is behind it is not.
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        give_up_at = time.monotonic() + _READ_WITHIN_S
        while time.monotonic() < give_up_at:
            for message in consumer.consume(1_000, 0.5):
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                elif error.name() == "_PARTITION_EOF":
                    return values
        raise LabError(f"the end of {topic}-{partition} was not reached")
    finally:
        consumer.close()
