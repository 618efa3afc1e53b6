"""What was asked for on the command line of a run of faults, and the command that asks for it."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tidelog.cli.options import Coordination
from tidelog.lab.peers import KAFKA_VERSION


class EngineName(StrEnum):
    """Whose brokers."""

    TIDELOG = "tidelog"
    KAFKA = "kafka"


class Acks(StrEnum):
    """Who has to have a record before it counts as sent."""

    ALL = "all"
    ONE = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabChoice:
    """All options of `lab faults` and `lab run` that matter to what happens."""

    command: str
    subject: tuple[str, ...]
    """What comes first behind the command: how many faults, or which schedule."""
    schedule: str | None
    """As somebody wrote it down."""
    engine: EngineName
    kafka_home: Path | None
    coordination: Coordination
    seed: int
    brokers: int
    partitions: int
    at_once: int
    acks: Acks
    min_insync: int
    unclean: bool
    data: Path | None
    report: Path | None
    as_json: bool

    def as_command(self) -> str:
        """What to type for the same faults, with everything said that has a bearing on them."""
        return shlex.join([*self.command.split(), *self.subject, *self._options()])

    def _options(self) -> Iterator[str]:
        yield from ("--seed", str(self.seed))
        yield from ("--brokers", str(self.brokers), "--partitions", str(self.partitions))
        if self.schedule is None and self.at_once != self.brokers:
            yield from ("--at-once", str(self.at_once))
        if self.engine is EngineName.KAFKA:
            yield from ("--engine", self.engine)
            if self.kafka_home is not None:
                yield from ("--kafka-home", str(self.kafka_home))
        else:
            yield from ("--coordination", self.coordination)
        yield from ("--acks", self.acks, "--min-insync", str(self.min_insync))
        if self.unclean:
            yield "--unclean"

    def as_facts(self) -> dict[str, str]:
        """The cluster and its load, as pairs to show."""
        whose = f"tidelog on {self.coordination}"
        if self.engine is EngineName.KAFKA:
            whose = f"Apache Kafka, {self.kafka_home or KAFKA_VERSION}"
        election = ", unclean elections allowed" if self.unclean else ""
        return {
            "brokers": f"{self.brokers} of {whose}",
            "topic": f"{self.partitions} {'partition' if self.partitions == 1 else 'partitions'} "
            f"of 3 replicas, min.insync.replicas {self.min_insync}{election}",
            "producers": f"acks={self.acks}"
            f"{', idempotent' if self.acks is Acks.ALL else ', not idempotent'}",
        }
