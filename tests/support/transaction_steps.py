"""Things that producers ask of a transaction coordinator, in an order that tells rules apart.

`golden/record_transactions.py` asks them of a real Kafka and writes down the answers and the
records; `tests/unit/core/transactions/test_as_kafka.py` asks our coordinator the same.

Producer ids are written `p0`, `p1`, ... in the order in which they are given out. A step whose
outcome is asked for while markers are written would depend on luck, so that steps after which a
transaction has to complete are followed by `Settle`.
"""

from dataclasses import dataclass
from typing import Final

TOPIC: Final = "steps"
PARTITION_COUNT: Final = 3
TIMEOUT_MS: Final = 60_000
LAST_EPOCH: Final = 2**15 - 2
"""The last epoch that a client is given."""

NOBODY: Final = ""


@dataclass(frozen=True, slots=True)
class Init:
    """InitProducerId, with the id and epoch that the producer has, if it has."""

    transactional_id: str
    producer: str = NOBODY
    epoch: int = -1
    timeout_ms: int = TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Add:
    """AddPartitionsToTxn; `version` 2 is how brokers ask, on behalf of a newer client."""

    transactional_id: str
    producer: str
    epoch: int
    partitions: tuple[int, ...]
    version: int = 2
    is_verification: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """EndTxn; `version` 2 bumps the epoch."""

    transactional_id: str
    producer: str
    epoch: int
    is_commit: bool
    version: int = 2


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait until no transaction of the id is open or completing; time-outs count."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class UseUp:
    """Abort transactions that were never begun until the epoch is `LAST_EPOCH`."""

    transactional_id: str
    producer: str
    epoch: int


Step = Init | Add | End | Settle | UseUp

_NEW = (
    Init("new"),
    Init("new"),
    Init("new", "p0", 1),
    Init("new", "p0", 1),  # The answer got lost.
    Init("new", "p0", 0),
    Init("new", "p0", 3),
    Init("new"),
    Init("new", "p0", 2),  # Nobody but the newest has an epoch before.
    Init("new", timeout_ms=0),
    Init("new", timeout_ms=2**31 - 1),
    Init("", timeout_ms=TIMEOUT_MS),
)

_UNKNOWN = (
    Add("unknown", "p0", 0, (0,)),
    Add("unknown", "p0", 0, (0,), is_verification=True),
    End("unknown", "p0", 0, is_commit=True),
    End("unknown", "p0", 0, is_commit=True, version=0),
    End("", "p0", 0, is_commit=True),
)

_CLASSIC = (
    Init("classic"),  # p1
    End("classic", "p1", 0, is_commit=True, version=0),
    End("classic", "p1", 0, is_commit=False, version=0),
    Add("classic", "p0", 0, (0,), version=0),
    Add("classic", "p1", 1, (0,), version=0),
    Add("classic", "p1", 0, (0, 1), version=0),
    Add("classic", "p1", 0, (1,), version=0),
    Add("classic", "p1", 0, (2,), version=0),
    Add("classic", "p1", 0, (0, 1), version=0, is_verification=True),
    End("classic", "p1", 1, is_commit=True, version=0),
    End("classic", "p1", 0, is_commit=True, version=0),
    Settle("classic"),
    End("classic", "p1", 0, is_commit=True, version=0),
    End("classic", "p1", 0, is_commit=False, version=0),
    Add("classic", "p1", 0, (1,), version=0),
    End("classic", "p1", 0, is_commit=False, version=0),
    Settle("classic"),
    End("classic", "p1", 0, is_commit=False, version=0),
    End("classic", "p1", 0, is_commit=True, version=0),
    Init("classic", "p1", 0),
)

_BUMPED = (
    Init("bumped"),  # p2
    End("bumped", "p2", 0, is_commit=True),
    End("bumped", "p2", 0, is_commit=False),
    Settle("bumped"),
    End("bumped", "p2", 0, is_commit=False),
    End("bumped", "p2", 0, is_commit=True),
    End("bumped", "p2", 1, is_commit=True),
    Add("bumped", "p2", 0, (0,)),
    Add("bumped", "p2", 1, (0, 2)),
    Add("bumped", "p2", 1, (0, 1), is_verification=True),
    Add("bumped", "p2", 0, (0,), is_verification=True),
    Add("bumped", "p1", 1, (0,), is_verification=True),
    End("bumped", "p2", 0, is_commit=True),
    End("bumped", "p1", 1, is_commit=True),
    End("bumped", "p2", 1, is_commit=True),
    Settle("bumped"),
    End("bumped", "p2", 1, is_commit=True),
    End("bumped", "p2", 1, is_commit=False),
    End("bumped", "p2", 2, is_commit=True),
    Add("bumped", "p2", 2, (0,), is_verification=True),
    End("bumped", "p2", 2, is_commit=False),
    Settle("bumped"),
    Add("bumped", "p2", 3, (1,)),
    End("bumped", "p2", 3, is_commit=False),
    Settle("bumped"),
    End("bumped", "p2", 3, is_commit=False),
    End("bumped", "p2", 3, is_commit=True),
    End("bumped", "p2", 2, is_commit=False),
    Init("bumped", "p2", 4),
    Init("bumped", "p2", 4),
    End("bumped", "p2", 4, is_commit=False),
)

_TAKEN_OVER = (
    Init("taken"),  # p3
    Add("taken", "p3", 0, (0,)),
    Init("taken"),
    Settle("taken"),
    End("taken", "p3", 0, is_commit=True),
    End("taken", "p3", 0, is_commit=False),
    Init("taken"),
    End("taken", "p3", 0, is_commit=False),
    End("taken", "p3", 1, is_commit=False),
    Add("taken", "p3", 1, (0,)),
    Add("taken", "p3", 2, (0,)),
    Init("taken", "p3", 2),
    Settle("taken"),
    Init("taken", "p3", 2),
    Init("taken", "p3", 3),
)

_TIMED_OUT = (
    Init("slow", timeout_ms=300),  # p4
    Add("slow", "p4", 0, (0, 1)),
    Settle("slow"),
    End("slow", "p4", 0, is_commit=True),
    End("slow", "p4", 0, is_commit=False),
    Add("slow", "p4", 0, (0,)),
    Add("slow", "p4", 1, (0,)),
    Settle("slow"),
    Add("slow", "p4", 1, (0,), version=0),
    Init("slow", "p4", 1),
    Init("slow", "p4", 2),
)

_USED_UP = (
    Init("spent"),  # p5
    UseUp("spent", "p5", 0),
    Init("spent", "p5", LAST_EPOCH),  # p6
    Init("spent", "p5", LAST_EPOCH),
    Init("spent", "p5", LAST_EPOCH - 1),
    UseUp("spent", "p6", 0),
    Add("spent", "p6", LAST_EPOCH, (0,)),
    End("spent", "p6", LAST_EPOCH, is_commit=True),  # p7
    Settle("spent"),
    End("spent", "p6", LAST_EPOCH, is_commit=True),
    End("spent", "p6", LAST_EPOCH, is_commit=False),
    End("spent", "p6", LAST_EPOCH - 1, is_commit=True),
    Add("spent", "p7", 0, (1,)),
    End("spent", "p6", LAST_EPOCH, is_commit=True),
    End("spent", "p7", 0, is_commit=False),
    Settle("spent"),
    UseUp("spent", "p7", 1),
    Add("spent", "p7", LAST_EPOCH, (2,)),
    Init("spent"),  # p8
    Settle("spent"),
    Init("spent"),
    UseUp("spent", "p8", 1),
    Init("spent"),  # p9
)

STEPS: Final[tuple[Step, ...]] = (
    *_NEW,
    *_UNKNOWN,
    *_CLASSIC,
    *_BUMPED,
    *_TAKEN_OVER,
    *_TIMED_OUT,
    *_USED_UP,
)
