"""Scenarios 1 to 4 and 6: one round of one row, on a cluster that runs and is left whole."""

from contextlib import suppress
from typing import Final

from tidelog.bench.errors import LoadFailed
from tidelog.bench.load_process import LoadStarter, latencies_from
from tidelog.bench.measured import Cost, LatencyPair, Setup, Throughput
from tidelog.bench.plan import BROKER_COUNT, VALUE_BYTES, LoadPlan
from tidelog.bench.subjects import Subject
from tidelog.bench.tasks import RUNNING, ConsumeTask, SendTask, Sent

_RUNNING_WITHIN_S: Final = 60.0
_WARM_UP_PARTITIONS: Final = 12


def warm_up(subject: Subject, load: LoadStarter, plan: LoadPlan) -> None:
    """A load that counts for nothing, on a cluster that was just started."""
    replicas = min(BROKER_COUNT, subject.broker_count)
    setup = Setup(-1, replicas, 1, _WARM_UP_PARTITIONS)
    # A server that is too cold to answer in time has been warmed up all the same.
    with subject.topic(setup) as topic, suppress(LoadFailed):
        load.send(_task(subject, topic, setup, plan, measured_s=plan.warm_up_s))


def measure_throughput(
    subject: Subject, load: LoadStarter, setup: Setup, plan: LoadPlan
) -> Throughput:
    """Records a second into a topic that is there for this round."""
    with subject.topic(setup) as topic:
        cpu_before_s = subject.cpu_s()
        sent = load.send(_task(subject, topic, setup, plan, measured_s=plan.measured_s))
        cost = _cost(subject, sent, cpu_before_s)
    latencies = latencies_from(sent.latencies)
    return Throughput(tps=sent.tps, mean_latency_ms=latencies.avg, cost=cost)


def measure_latency(
    subject: Subject, load: LoadStarter, setup: Setup, plan: LoadPlan
) -> LatencyPair:
    """How long records take to be acknowledged, and to reach a consumer that waits for them."""
    with subject.topic(setup) as topic:
        consume = ConsumeTask(
            bootstrap=subject.bootstrap, topic=topic, partition_count=setup.partitions
        )
        cpu_before_s = subject.cpu_s()
        with load.consuming(consume) as consumer:
            consumer.wait_for(RUNNING, within_s=_RUNNING_WITHIN_S)
            sent = load.send(_task(subject, topic, setup, plan, measured_s=plan.latency_s))
            consumer.tell(f"{sent.first_counted} {sent.first_counted + sent.counted}")
            consumed = latencies_from(consumer.answer())
        cost = _cost(subject, sent, cpu_before_s)
    return LatencyPair(
        producer=latencies_from(sent.latencies), consumer=consumed, tps=sent.tps, cost=cost
    )


def _task(
    subject: Subject, topic: str, setup: Setup, plan: LoadPlan, *, measured_s: float
) -> SendTask:
    return SendTask(
        bootstrap=subject.bootstrap,
        topic=topic,
        partition_count=setup.partitions,
        acks=setup.acks,
        retries=0,
        is_idempotent=False,
        in_flight=plan.in_flight,
        value_bytes=VALUE_BYTES,
        lead_in_s=plan.lead_in_s,
        measured_s=measured_s,
    )


def _cost(subject: Subject, sent: Sent, cpu_before_s: float | None) -> Cost:
    return Cost(
        client_cpu_us=sent.client_cpu_us,
        broker_cpu_us=_per_record_us(subject.cpu_s(), cpu_before_s, sent.total_count),
        resident_mib=subject.resident_mib(),
    )


def _per_record_us(after_s: float | None, before_s: float | None, count: int) -> float | None:
    if after_s is None or before_s is None:
        return None
    return (after_s - before_s) / count * 1e6
