"""What a cluster looks like from moment to moment: who lives, who leads, who is in sync.

Brokers are asked again and again, on a thread, past any proxy. What they say is kept for whoever
looks on while it goes, and for the picture in the report. A change that comes and goes between two
looks is not seen; what a moment looks like is what most brokers say.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidelog.client.errors import ClientError
from tidelog.client.membership import TopicView, ask_topic
from tidelog.client.values import PartitionDescription
from tidelog.lab.errors import LabError
from tidelog.lab.local_cluster import LocalCluster

INTERVAL_S: Final = 0.2
_ANSWER_WITHIN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Moment:
    """At `at` (`time.monotonic`): whose process lived, and what brokers said of the topic."""

    at: float
    broker_ids: tuple[int, ...]
    alive: frozenset[int]
    controller_id: int | None
    partitions: tuple[PartitionDescription, ...]
    acknowledged: int
    """By all producers, since the beginning."""


class Observer:
    """Looks at `topic` of `cluster` until it is stopped."""

    def __init__(
        self, cluster: LocalCluster, topic: str, count_acknowledged: Callable[[], int]
    ) -> None:
        self.moments: list[Moment] = []
        self._cluster = cluster
        self._topic = topic
        self._count_acknowledged = count_acknowledged
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def latest(self) -> Moment | None:
        return self.moments[-1] if self.moments else None

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            with suppress(LabError):  # The state file is being replaced.
                self.moments.append(self._look())

    def _look(self) -> Moment:
        brokers = self._cluster.brokers
        alive = [broker for broker in brokers if broker.is_alive]
        views: list[TopicView] = []
        for broker in alive:
            with suppress(ClientError):
                view = ask_topic(broker.endpoint, self._topic, timeout_s=_ANSWER_WITHIN_S)
                views.append(view)
        common = max(views, key=views.count, default=None)
        return Moment(
            at=time.monotonic(),
            broker_ids=tuple(broker.id for broker in brokers),
            alive=frozenset(broker.id for broker in alive),
            controller_id=None if common is None else common.membership.controller_id,
            partitions=() if common is None else common.partitions,
            acknowledged=self._count_acknowledged(),
        )
