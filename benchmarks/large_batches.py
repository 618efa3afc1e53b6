"""Requests as large as a client's full batch, and the processor time that servers spend on them.

Client and servers share the machine: whatever else is clever about a server, it cannot take more
records than there is processor time for.
"""

from collections.abc import Sequence

from benchmarks.raw import (
    ACKS_ALL,
    Exchanges,
    RawConnection,
    batch_of,
    now_ms,
    produce_frame,
    time_in_turns,
)
from tidelog.bench.process_stats import cpu_seconds

VALUE_SIZE_BYTES = 1_024
# With their overhead a little less than a megabyte, as librdkafka's batches by default.
RECORDS_IN_BATCH = 900


def large_exchanges(connection: RawConnection, topic: str, count: int) -> Exchanges:
    batch = batch_of(RECORDS_IN_BATCH, VALUE_SIZE_BYTES, timestamp_ms=now_ms())
    return Exchanges(connection, [produce_frame(topic, 0, batch, acks=ACKS_ALL)] * count)


def processor_time_us(pids: Sequence[int], exchanges: Exchanges) -> float:
    """What one record costs the processes `pids`, while one batch after the other is sent."""
    before_s = sum(map(cpu_seconds, pids))
    time_in_turns({"": exchanges})
    spent_s = sum(map(cpu_seconds, pids)) - before_s
    return spent_s / (RECORDS_IN_BATCH * len(exchanges.frames)) * 1e6
