"""Who coordinates a group or a transactional id, and how to ask it.

A coordinator that has just moved says so, or is still reading what its predecessor wrote: whoever
is told that looks for it again until the time is up.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.static.primitive import i8

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClusterUnreachable, RequestFailed
from tidelog.client.values import BrokerNode

GROUP: Final = 0
TRANSACTION: Final = 1
_LOOK_AGAIN: Final = frozenset(
    {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
)
_PAUSE_S: Final = 0.1

T = TypeVar("T")


def find_coordinator(address: Address, key: str, kind: int, *, timeout_s: float) -> BrokerNode:
    """Who coordinates `key`, as the broker at `address` knows it."""
    request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))
    answer = ask(address, request, FindCoordinatorResponse, timeout_s=timeout_s)
    (found,) = answer.coordinators
    require_success(found.error_code, found.error_message)
    return BrokerNode(id=found.node_id, host=found.host, port=found.port, rack=None)


def ask_coordinator(
    addresses: Sequence[Address],
    key: str,
    kind: int,
    question: Callable[[BrokerNode], T],
    *,
    timeout_s: float,
) -> T:
    """What the coordinator of `key` answers. `addresses` are brokers that may know who it is."""
    give_up_at = time.monotonic() + timeout_s
    number = 0
    while True:
        address = addresses[number % len(addresses)]
        number += 1
        try:
            return question(find_coordinator(address, key, kind, timeout_s=timeout_s))
        except ClusterUnreachable:
            if time.monotonic() >= give_up_at:
                raise
        except RequestFailed as error:
            if error.code_name not in _LOOK_AGAIN or time.monotonic() >= give_up_at:
                raise
        time.sleep(_PAUSE_S)
