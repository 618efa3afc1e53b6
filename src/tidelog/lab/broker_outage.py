"""A broker that is away, at most one at a time: from its kill until it is in sync again (B3).

It comes back beside whatever else is done meanwhile, in a thread:

    kill ──▶ down ── come_back ──▶ starting ──▶ catching up ──▶ in sync
                                                      └─ end: waited for

Topics whose `min.insync.replicas` is 2 of 3 take records all the time. While one is away nobody
else is killed: with two of three gone they would not, and a job that does nothing proves nothing.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol


class RestartableCluster(Protocol):
    """What is done to brokers."""

    def kill(self, broker_id: int) -> None: ...
    def restart(self, broker_id: int) -> None: ...


class BrokerOutage:
    """`wait_in_sync` returns when all brokers are."""

    def __init__(
        self,
        cluster: RestartableCluster,
        wait_in_sync: Callable[[], None],
        starter: ThreadPoolExecutor,
    ) -> None:
        self._cluster = cluster
        self._wait_in_sync = wait_in_sync
        self._starter = starter
        self._broker_id: int | None = None
        self._return: Future[None] | None = None

    @property
    def broker_id(self) -> int | None:
        """Who is down, starting or not in sync; None if all are."""
        if self._return is not None and self._return.done():
            return None
        return self._broker_id

    def begin(self, broker_id: int) -> None:
        assert self._broker_id is None, "one at a time"
        self._cluster.kill(broker_id)
        self._broker_id = broker_id

    def come_back(self) -> None:
        """Have it start, and do not wait for it; nothing if it does, or if all are there."""
        if self._broker_id is not None and self._return is None:
            self._return = self._starter.submit(self._bring_back, self._broker_id)

    def end(self) -> None:
        """Return when all are in sync. LabError if that takes too long."""
        self.come_back()
        if self._return is not None:
            self._return.result()
        self._broker_id = self._return = None

    def _bring_back(self, broker_id: int) -> None:
        self._cluster.restart(broker_id)
        self._wait_in_sync()


@contextmanager
def broker_outage(
    cluster: RestartableCluster, wait_in_sync: Callable[[], None]
) -> Iterator[BrokerOutage]:
    """Who is on the way back at the end of the block is waited for, and who is down stays so."""
    with ThreadPoolExecutor(1, "broker's return") as starter:
        yield BrokerOutage(cluster, wait_in_sync, starter)
