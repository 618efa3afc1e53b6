"""The coordinators on this broker: one shard for each partition of an internal topic that it leads.

    key ──hash──▶ partition ──▶ ShardRunner, if this broker leads it

`Replicas` tells when a partition of the topic is led here, in which epoch, and when not any more
(`on_role`); whatever else a shard needs to know of the cluster comes from the image.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.base.ports import Clock
from tidelog.broker.append_terms import Marker
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.shard_runner import S, ShardKind, ShardRunner
from tidelog.core.coordinators import Effects, Transactional, partition_of
from tidelog.records.control import ControlType


class Coordinators(Generic[S]):
    """Every shard of one kind that this broker runs, found by key."""

    def __init__(
        self,
        topic: str,
        kind: ShardKind[S],
        *,
        partitions: Partitions,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        reply_timeout_ms: int,
        load_bytes: int,
    ) -> None:
        self.topic = topic
        self._kind = kind
        self._partitions = partitions
        self._clock = clock
        self._loop = loop
        self._tasks = tasks
        self._reply_timeout_ms = reply_timeout_ms
        self._load_bytes = load_bytes
        self._runners: dict[int, ShardRunner[S]] = {}

    def __iter__(self) -> Iterator[ShardRunner[S]]:
        return iter(tuple(self._runners.values()))

    def of(self, key: str) -> ShardRunner[S]:
        """The shard that looks after `key`. Raises RequestRefused if that is somebody else's.

        The shard may still be loading, and say so itself.
        """
        runner = self._runners.get(self.partition_of(key))
        if runner is None:
            raise RequestRefused(ErrorCode.NOT_COORDINATOR)
        return runner

    def partition_of(self, key: str) -> int:
        """The partition that `key` falls to. Raises RequestRefused while there is no topic."""
        topic = self._partitions.image.topics.get(self.topic)
        if topic is None:
            raise RequestRefused(ErrorCode.NOT_COORDINATOR)
        return partition_of(key, len(topic.partitions))

    def of_partition(self, partition: int) -> ShardRunner[S] | None:
        return self._runners.get(partition)

    def tell_all(self, decide: Callable[[S, int], Effects]) -> None:
        """Have every shard know of something, if it is loaded. Those that are not will look."""
        for runner in self:
            runner.tell(decide)

    # -- what partitions tell --------------------------------------------------------------------

    def attach(self, partition: PartitionRunner) -> None:
        """Follow the role of `partition`, which has none yet."""
        partition.role_watcher = partial(self.on_role, partition)
        partition.marker_watcher = partial(self._on_marker, partition)

    def on_role(self, partition: PartitionRunner) -> None:
        """`partition` is led here now, in a new epoch, or not any more."""
        number = partition.partition
        known = self._runners.pop(number, None)
        if known is not None:
            known.end()
        if partition.leader is not None and not partition.is_offline:
            self._runners[number] = ShardRunner(
                self._kind,
                partition,
                clock=self._clock,
                loop=self._loop,
                tasks=self._tasks,
                reply_timeout_ms=self._reply_timeout_ms,
                load_bytes=self._load_bytes,
            )

    def end(self) -> None:
        """This broker stops: whoever waits is to look for another."""
        for runner in self:
            runner.end()

    def _on_marker(self, partition: PartitionRunner, marker: Marker, end_offset: Offset) -> None:
        runner = self._runners.get(partition.partition)
        if runner is not None:
            runner.on_transaction_ended(
                Transactional(marker.producer_id, marker.producer_epoch),
                is_committed=marker.end.control_type is ControlType.COMMIT,
                end_offset=end_offset,
            )
