"""Replication quotas (KIP-73): which replicas are throttled, and how fast bytes have been going.

A topic names replicas whose copying must not take more than a broker's rate, as a rule those that a
move is filling. Who is in sync is not throttled by it: the leader counts what it sends to throttled
replicas that lag, the follower what it fetches for its own.

A rate is measured over samples of fixed length, Kafka's way: the bytes of the samples that are
young enough, over the time since the oldest of them began, but at least one sample. So a meter that
has just begun does not divide by next to nothing, and a burst is forgotten when its sample is.

Nothing here reads a clock or waits: `now_ms` is an argument and must not go back.
"""

from collections import deque
from dataclasses import dataclass, field

from tidelog.base.ids import BrokerId

SAMPLE_COUNT = 11
SAMPLE_MS = 1_000

_ALL = "*"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """What `leader.replication.throttled.replicas` or its counterpart of followers says."""

    are_all: bool
    replicas: frozenset[tuple[int, BrokerId]]

    @classmethod
    def parse(cls, setting: tuple[str, ...]) -> "ThrottledReplicas":
        """`setting` has passed the topic's config: it is `*`, or `partition:broker` pairs."""
        if setting == (_ALL,):
            return cls(True, frozenset())
        pairs = (pair.split(":") for pair in setting if pair)
        return cls(
            False, frozenset((int(partition), BrokerId(int(broker))) for partition, broker in pairs)
        )

    def contains(self, partition: int, broker_id: BrokerId) -> bool:
        return self.are_all or (partition, broker_id) in self.replicas


@dataclass(slots=True)
class _Sample:
    began_ms: int
    size_bytes: int


@dataclass(slots=True, kw_only=True)
class RateMeter:
    """Bytes per second over the last `sample_count` samples, against a limit.

    The limit may be set anew at any time; what was recorded before counts against it.
    """

    limit_bytes_per_s: int
    sample_count: int
    sample_ms: int
    _samples: deque[_Sample] = field(default_factory=deque)

    def record(self, size_bytes: int, now_ms: int) -> None:
        assert size_bytes >= 0
        samples = self._samples
        assert not samples or now_ms >= samples[-1].began_ms
        if samples and now_ms - samples[-1].began_ms < self.sample_ms:
            samples[-1].size_bytes += size_bytes
            return
        samples.append(_Sample(now_ms, size_bytes))
        if len(samples) > self.sample_count:
            samples.popleft()

    def rate(self, now_ms: int) -> float:
        """Bytes per second."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0].began_ms, self.sample_ms)
        return 1_000 * sum(sample.size_bytes for sample in self._samples) / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        return self.rate(now_ms) > self.limit_bytes_per_s

    def _forget(self, now_ms: int) -> None:
        oldest_ms = now_ms - self.sample_count * self.sample_ms
        while self._samples and self._samples[0].began_ms <= oldest_ms:
            self._samples.popleft()
