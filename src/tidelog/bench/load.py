"""The load generator: one confluent-kafka client in a process of its own.

Run as `python -m tidelog.bench.load TASK JSON [FILE]`, where the JSON object holds the fields of
the task (`tasks.py`). Prints one JSON object. Topics exist already; a part of the load at its
beginning counts for nothing. Being a process of its own, a client can neither share an
interpreter's lock with the one that measures nor carry anything from one round to the next.

    send         records for a while: `sync`, as `sender.py` says
    consume      prints `running`, reads on stdin which records count, ends when it has them all
    survive      sends until it is told to stop; is told what is done to brokers meanwhile, and
                 leaves in FILE what became of every record
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tidelog.bench.measured import SLICE_S
from tidelog.bench.percentiles import latencies_of
from tidelog.bench.sender import RecordWindow
from tidelog.bench.tasks import (
    KILLED,
    RESTARTING,
    RUNNING,
    STOP,
    WHOLE,
    ConsumeTask,
    SendTask,
    Sent,
    Survived,
)

_CLIENT_TIMEOUT_S: Final = 60.0
_CONSUME_WAIT_S: Final = 0.2
_NS: Final = 1_000_000_000
# As the Java client has it, and the document's had; librdkafka's own is a million.
_REQUESTS_IN_FLIGHT: Final = 5
_RECONNECT_MS_MAX: Final = 1_000
# Longer than any fault here: a record is given up when its retries are, and not before.
_DELIVERY_TIMEOUT_MS: Final = 600_000


def send(task: SendTask) -> Sent:
    """Records for `lead_in_s`, until some are acknowledged; then for `measured_s`, which counts."""
    window = _new_window(task, {})
    lead_in_ends_ns = time.monotonic_ns() + round(task.lead_in_s * _NS)
    give_up_ns = lead_in_ends_ns + round(_CLIENT_TIMEOUT_S * _NS)
    window.run(lambda: _is_led_in(window, time.monotonic_ns(), lead_in_ends_ns, give_up_ns))
    counted_from_ns = time.monotonic_ns()
    ends_ns = counted_from_ns + round(task.measured_s * _NS)
    cpu_s = time.process_time()
    first_counted = len(window.sent_ns)
    window.run(lambda: time.monotonic_ns() >= ends_ns)
    cpu_s = time.process_time() - cpu_s
    sent_count = len(window.sent_ns)
    window.finish(_CLIENT_TIMEOUT_S)
    _require_all(window)
    counted = range(first_counted, sent_count)
    if not counted:
        raise TimeoutError("nothing was acknowledged in time")
    return Sent(
        tps=window.acknowledged_between(counted_from_ns, ends_ns) / task.measured_s,
        total_count=sent_count,
        client_cpu_us=cpu_s / len(counted) * 1e6,
        first_counted=first_counted,
        counted=len(counted),
        latencies=asdict(latencies_of(window.done_ns[n] - window.sent_ns[n] for n in counted)),
    )


def consume(task: ConsumeTask) -> object:
    """End to end latencies of the records that count."""
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "tidelog-bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(task.topic, n, 0) for n in range(task.partition_count)])
    for n in range(task.partition_count):  # It is connected to every leader.
        consumer.get_watermark_offsets(TopicPartition(task.topic, n), timeout=_CLIENT_TIMEOUT_S)
    wanted: list[range] = []
    threading.Thread(target=lambda: wanted.append(_read_range()), daemon=True).start()
    _say(RUNNING)
    arrived: dict[int, int] = {}
    give_up_at: float | None = None
    while not wanted or not _has_all(arrived, wanted[0]):
        _take(consumer, arrived)
        if wanted and give_up_at is None:
            give_up_at = time.monotonic() + _CLIENT_TIMEOUT_S
        if give_up_at is not None and time.monotonic() >= give_up_at:
            raise TimeoutError("records that were acknowledged did not arrive")
    consumer.close()
    return asdict(latencies_of(arrived[number] for number in wanted[0]))


def survive(task: SendTask, ledger: Path) -> Survived:
    """Send until told to stop, through whatever is done to brokers."""
    # Where the client tries again by itself, only its own log says what it met.
    window = _new_window(task, {"debug": "msg", "log_level": 7})
    told = _Told()
    threading.Thread(target=told.listen, daemon=True).start()
    _say(RUNNING)
    began_ns = time.monotonic_ns()
    window.run(lambda: told.killed_ns is not None or told.is_stopping)
    whole_ns = _until_whole(window, told)
    window.run(lambda: told.is_stopping)
    ended_ns = time.monotonic_ns()
    window.finish(_CLIENT_TIMEOUT_S)
    with ledger.open("wb") as file:
        window.offsets.tofile(file)
    counted_from_ns = began_ns + round(task.lead_in_s * _NS)
    killed_ns = told.killed_ns or ended_ns
    back_ns = whole_ns or ended_ns
    return Survived(
        began_ns=began_ns,
        tps_before=_rate(window, counted_from_ns, killed_ns),
        tps_during=_rate(window, killed_ns, back_ns),
        tps_after=None if whole_ns is None else _rate(window, whole_ns, ended_ns),
        whole_ns=whole_ns,
        acknowledged_while_down=_acknowledged_while_down(window, killed_ns, told.restarting_ns),
        failures=dict(window.failures),
        tps_by_time=_by_time(window.done_ns, began_ns, ended_ns),
    )


def _until_whole(window: RecordWindow, told: "_Told") -> int | None:
    """Go on until every partition takes records again, and say so; None if told to stop first."""
    window.await_all_partitions()
    window.run(lambda: not window.awaited or told.is_stopping)
    if window.awaited:
        return None
    _say(WHOLE)
    return time.monotonic_ns()


def _is_led_in(window: RecordWindow, now_ns: int, ends_ns: int, give_up_ns: int) -> bool:
    """A server that was just started may not have answered by the end of the lead-in."""
    return now_ns >= ends_ns and (window.has_answers or now_ns >= give_up_ns)


class _Told:
    """What the one that measures has said so far."""

    def __init__(self) -> None:
        self.killed_ns: int | None = None
        self.restarting_ns: int | None = None
        self.is_stopping = False

    def listen(self) -> None:
        for line in sys.stdin:
            word, _, time_ns = line.strip().partition(" ")
            if word == KILLED:
                self.killed_ns = int(time_ns)
            elif word == RESTARTING:
                self.restarting_ns = int(time_ns)
            else:
                assert word == STOP
                self.is_stopping = True
        self.is_stopping = True  # Nobody listens any more.


def _new_window(task: SendTask, settings: Mapping[str, str | int]) -> RecordWindow:
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "acks": task.acks,
            "retries": task.retries,
            "enable.idempotence": task.is_idempotent,
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": _REQUESTS_IN_FLIGHT,
            "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
            "reconnect.backoff.max.ms": _RECONNECT_MS_MAX,
            "log_level": 0,
            **settings,
        }
    )
    producer.list_topics(task.topic, timeout=_CLIENT_TIMEOUT_S)
    return RecordWindow(
        producer,
        task.topic,
        partition_count=task.partition_count,
        value_bytes=task.value_bytes,
        in_flight_max=task.in_flight,
    )


def _require_all(window: RecordWindow) -> None:
    if window.failures:
        raise ConnectionError(f"records failed: {dict(window.failures)}")
    if not all(window.done_ns):
        raise TimeoutError("not all records were acknowledged")


def _read_range() -> range:
    first, _, end = sys.stdin.readline().partition(" ")
    return range(int(first), int(end))


def _take(consumer: Consumer, arrived: dict[int, int]) -> None:
    # One at a time: `consume` would wait for many, and that would be measured.
    message = consumer.poll(_CONSUME_WAIT_S)
    if message is None:
        return
    now_ns = time.monotonic_ns()
    error = message.error()
    if error is not None:
        raise ConnectionError(str(error))
    number, sent_ns, _ = (message.value() or b"").split(b" ", 2)
    arrived[int(number)] = now_ns - int(sent_ns)


def _has_all(arrived: Mapping[int, int], wanted: range) -> bool:
    return len(arrived) >= wanted.stop and all(number in arrived for number in wanted)


def _rate(window: RecordWindow, start_ns: int, end_ns: int) -> float:
    length_s = (end_ns - start_ns) / _NS
    return window.acknowledged_between(start_ns, end_ns) / length_s if length_s > 0 else 0.0


def _acknowledged_while_down(
    window: RecordWindow, killed_ns: int, restarting_ns: int | None
) -> int:
    if restarting_ns is None:
        return 0
    return sum(
        sent_ns > killed_ns and 0 < done_ns < restarting_ns
        for sent_ns, done_ns in zip(window.sent_ns, window.done_ns, strict=True)
    )


def _by_time(done_ns: Iterable[int], began_ns: int, ended_ns: int) -> list[float]:
    """Acknowledgements a second, in whole slices of the time in which records were sent."""
    slice_ns = round(SLICE_S * _NS)
    counts = [0] * ((ended_ns - began_ns) // slice_ns)
    for each in done_ns:
        index = (each - began_ns) // slice_ns
        if 0 <= index < len(counts):
            counts[index] += 1
    return [count / SLICE_S for count in counts]


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(task_name: str, fields: str, *files: str) -> None:
    data = json.loads(fields)
    answers: Mapping[str, Callable[[], object]] = {
        "send": lambda: asdict(send(SendTask(**data))),
        "consume": lambda: consume(ConsumeTask(**data)),
        "survive": lambda: asdict(survive(SendTask(**data), Path(files[0]))),
    }
    _say(json.dumps(answers[task_name]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
