"""What the coordinators of groups and of transactions have in common.

Each key (a group's id, a transactional id) falls to one partition of an internal topic, and the
leader of that partition looks after it. The part of a coordinator that belongs to one partition is
a *shard*: a machine without I/O, whose state is what the partition's log says.

    request, time ──▶ shard ──▶ Write    records that say what was decided
                                Reply    the answer to a request, held until it is safe
                                Perform  a deed elsewhere in the cluster, held likewise

A request that waits is known to a shard by a `Token`, which its runner made; what a shard replies
with is a value, which its runner makes an answer of. A token is replied to exactly once.

Rules, for shards and for their runner (`broker/shard_runner.py`):

    W1  A shard changes as it decides, and writes what it has changed. Replaying what was written
        into a new shard gives one that decides the same, but for what is only in memory: members
        who wait, timers, which begin again.
    W2  Nobody is told what may be taken back. A `Reply` is held until all that its shard wrote
        before is committed: in the log of every replica in sync. (`is_held=False` says that the
        answer tells nothing of the kind: a heartbeat.) `Perform` is held as well.
    W3  Writes reach the log in the order in which they were decided. A write that fails leaves a
        shard that knows what its log does not: it is thrown away with everybody who waits, and
        loaded again. So whatever can be foreseen is refused before anything is changed: a broker
        that cannot write gives its shards no requests, and a shard writes no record larger than
        `record_max_bytes`.
    W4  One shard leads a partition's log, from the end of its loading to the end of the leader
        epoch in which it was loaded. It writes in that epoch alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NewType

from tidelog.base.ids import ProducerEpoch, ProducerId

Token = NewType("Token", int)
"""A request that waits for its answer."""


@dataclass(frozen=True, slots=True)
class Transactional:
    """Whose transaction a write belongs to: nothing of it counts before that is committed."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@dataclass(frozen=True, slots=True)
class Write:
    """Append `records` to the shard's log, all or none of those that fit into one batch.

    A shard's records are values of its own kind; `broker/` knows how Kafka writes them.
    """

    records: tuple[object, ...]
    transactional: Transactional | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request `token` with `answer`, a value that its handler understands."""

    token: Token
    answer: object
    is_held: bool = True
    """Until what was written before is committed. W2"""


@dataclass(frozen=True, slots=True)
class Perform:
    """Hand `deed` to whoever runs shards of this kind, when what was written before is committed.

    For what reaches beyond the shard's own log: the markers of a transaction may be sent only when
    nothing can take its outcome back. W2
    """

    deed: object


Effect = Write | Reply | Perform
Effects = Sequence[Effect]

NO_EFFECTS: Final[Effects] = ()


def partition_of(key: str, partition_count: int) -> int:
    """The partition of an internal topic that `key` falls to, as Kafka's brokers and tools count.

    Java's hash of a string: over its UTF-16 code units, in 32 bits.
    """
    code = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(encoded), 2):
        code = (31 * code + (encoded[index] << 8) + encoded[index + 1]) & 0xFFFF_FFFF
    return (code & 0x7FFF_FFFF) % partition_count
