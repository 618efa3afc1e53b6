"""One way of producing in batches, with what is measured of it (T3)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from benchmarks.clients import run_produce, stored_record_count
from benchmarks.harness import Bench, Turn
from benchmarks.load import ProduceTask
from benchmarks.results import Metric, Target
from tidelog.bench.process_stats import cpu_seconds

VALUE_SIZE_BYTES = 1_024
PARTITION_COUNT = 12


@dataclass(frozen=True, slots=True)
class ProduceCase:
    name: str
    throughput: Metric
    broker_cpu: Metric
    client_cpu: Metric
    task: ProduceTask

    @classmethod
    def new(
        cls,
        bench: Bench,
        *,
        record_count: int,
        acks: str,
        in_batches: bool,
        targets: tuple[Target, ...],
    ) -> Self:
        name = f"acks={acks}, {'produce_batch()' if in_batches else 'produce()'}"
        return cls(
            name,
            bench.metric(Metric(name, "records/s", targets)),
            bench.metric(Metric(f"{name}, brokers' processor time", "us/record")),
            bench.metric(Metric(f"{name}, client's processor time", "us/record")),
            ProduceTask(
                record_count=bench.count(record_count),
                value_size_bytes=VALUE_SIZE_BYTES,
                acks=acks,
                in_batches=in_batches,
            ),
        )

    def topic(self, turn: Turn) -> str:
        """One that no other turn uses."""
        return f"batched-{self.task.acks}-{self.task.in_batches}-{turn.label}".lower()

    def measure(
        self,
        turn: Turn,
        bootstrap: str,
        pids: Sequence[int],
        with_topic: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Produce to a topic that is there for this turn, and count what the leaders hold."""
        topic, task = self.topic(turn), self.task
        with with_topic(topic):
            cpu_before = sum(map(cpu_seconds, pids))
            result = run_produce(bootstrap, topic, task)
            cpu_s = sum(map(cpu_seconds, pids)) - cpu_before
            if task.acks == "all" or len(pids) == 1:  # Else followers have yet to fetch it.
                stored = stored_record_count(bootstrap, topic, partition_count=PARTITION_COUNT)
                assert stored == task.record_count, f"{turn.name} holds {stored} records"
        turn.record(self.broker_cpu, cpu_s / task.record_count * 1e6)
        turn.record(self.client_cpu, result.client_cpu_s / task.record_count * 1e6)
        turn.record(self.throughput, task.record_count / result.elapsed_s)
