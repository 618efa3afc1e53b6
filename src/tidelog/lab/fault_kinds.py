"""What can be done to a cluster, and to whom: the words that schedules, tables and reports share.

A victim is named by its role - who leads a partition, who controls - and not by number, because
who that is depends on what happened before. A number may be given all the same.

    deed            how                                              ends
    kill            SIGKILL                                          it is started again
    pause           SIGSTOP                                          SIGCONT
    stop            SIGTERM: it hands over what it leads             it is started again
    cut             no byte passes between it and others             bytes pass again
    slow            bytes take longer                                they do not any more
    expire          its coordination session is declared dead        by itself
    fill-disk       no room is left in its log directory             there is room
    tear            SIGKILL, and the last batch of a log is half     it is started again
    corrupt         SIGKILL, and a byte that was not flushed differs it is started again
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Deed(StrEnum):
    """What is done."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"
    CUT = "cut"
    SLOW = "slow"
    EXPIRE = "expire"
    FILL_DISK = "fill-disk"
    TEAR = "tear"
    CORRUPT = "corrupt"


class Role(StrEnum):
    """To whom, as it turns out when it is done."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    GROUP_COORDINATOR = "group coordinator"
    TRANSACTION_COORDINATOR = "transaction coordinator"
    MINORITY = "minority"
    MAJORITY = "majority"
    ALL = "all"
    RANDOM = "random"
    ZOOKEEPER_LEADER = "zookeeper leader"


class Others(StrEnum):
    """From whom a broker is cut off, or to whom its way is slow."""

    BROKERS = "others"
    CLIENTS = "clients"
    ZOOKEEPER = "zookeeper"
    EVERYBODY = "everybody"


# What is done to files, sessions and links has no meaning for a server of an ensemble.
DEEDS_TO_SERVERS: Final = frozenset({Deed.KILL, Deed.PAUSE})
# How the victim is away for a while, and comes back.
LASTING: Final = frozenset(set(Deed) - {Deed.EXPIRE})
NETWORK: Final = frozenset({Deed.CUT, Deed.SLOW})
# Of the replicas in sync another one must have what this one loses.
DAMAGE: Final = frozenset({Deed.TEAR, Deed.CORRUPT})


@dataclass(frozen=True, slots=True)
class BrokerNumber:
    """One broker, whatever its role."""

    broker_id: int

    def __str__(self) -> str:
        return f"broker {self.broker_id}"


Victim = Role | BrokerNumber
