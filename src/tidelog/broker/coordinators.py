"""The coordinators on this broker: one shard for each partition of an internal topic that it leads.

    key ──hash──▶ partition ──▶ ShardRunner, if this broker leads it

`Replicas` tells when a partition of the topic is led here, in which epoch, and when not any more
(`on_role`); whatever else a shard needs to know of the cluster comes from the image.

A client may hear of a new coordinator before that has opened the partition and read its log, above
all when its own FindCoordinator has had the topic made. NOT_COORDINATOR would send it to look
again, and cost it half a second; so a broker that the image says leads the partition, or whose
shard is loading, keeps the request for up to TAKING_OFFICE_MAX_S, and decides it as if it had come
later. But only in the epoch that it was kept for: a broker that was paused finds old requests in
its sockets and an old image in its memory, and when it leads again, others have answered the same
client meanwhile. An EndTxn of then would end the transaction of now.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, Offset, TopicPartition
from tidelog.base.ports import Clock
from tidelog.broker.append_terms import Marker
from tidelog.broker.partition_ports import LogDirectory
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.shard_runner import S, ShardKind, ShardRunner
from tidelog.core.coordinators import Effects, Token, Transactional, partition_of
from tidelog.records.control import ControlType

TAKING_OFFICE_MAX_S = 2.0
LOADS_MAX = 4
"""Shards of a log dir that are loaded at a time: each has a table of what need not be replayed, up
to 100 MB. A disk that hangs keeps its own waiting, not those of other disks."""


class Coordinators(Generic[S]):
    """Every shard of one kind that this broker runs, found by key."""

    def __init__(
        self,
        topic: str,
        kind: ShardKind[S],
        *,
        broker_id: BrokerId,
        partitions: Partitions,
        clock: Clock,
        hash_key: bytes,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        reply_timeout_ms: int,
        load_bytes: int,
    ) -> None:
        """`hash_key`: see `BrokerPorts`."""
        self.topic = topic
        self._kind = kind
        self._broker_id = broker_id
        self._partitions = partitions
        self._clock = clock
        self._hash_key = hash_key
        self._loads: defaultdict[LogDirectory, asyncio.Semaphore] = defaultdict(
            partial(asyncio.Semaphore, LOADS_MAX)
        )
        self._loop = loop
        self._tasks = tasks
        self._reply_timeout_ms = reply_timeout_ms
        self._load_bytes = load_bytes
        self._runners: dict[int, ShardRunner[S]] = {}
        self._coming: dict[int, asyncio.Future[None]] = {}

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

    def ask(
        self, key: str, decide: Callable[[S, Token, int], Effects], *, may_write: bool
    ) -> "asyncio.Future[object]":
        """What the shard of `key` replies, as soon as it serves. Raises RequestRefused."""
        coming = self.coming(key)
        if coming is None:
            return self.of(key).ask(decide, may_write=may_write)
        return self.later(key, coming, lambda: self.of(key).ask(decide, may_write=may_write))

    def later(
        self,
        key: str,
        coming: "asyncio.Future[None]",
        ask: Callable[[], "asyncio.Future[object]"],
    ) -> "asyncio.Future[object]":
        """What `ask` leads to once `coming` is done, if the shard is of the epoch it is now."""
        return after(coming, self.in_epoch_of_now(key, ask))

    def in_epoch_of_now(
        self, key: str, ask: Callable[[], "asyncio.Future[object]"]
    ) -> Callable[[], "asyncio.Future[object]"]:
        """`ask`, to be called later, which then raises RequestRefused if the epoch is another.

        Whoever waited through a change of leaders may have asked others meanwhile: what was meant
        for what one coordinator knew must not be decided upon what the next one knows.
        """
        number = self.partition_of(key)
        epoch = self._epoch(number)

        def ask_in_time() -> "asyncio.Future[object]":
            if self._epoch(number) != epoch:
                raise RequestRefused(ErrorCode.NOT_COORDINATOR)
            return ask()

        return ask_in_time

    def _epoch(self, number: int) -> int | None:
        """In which the partition is led here, or will be; None if it is gone."""
        runner = self._runners.get(number)
        if runner is not None:
            return runner.leader_epoch
        topic = self._partitions.image.topics.get(self.topic)
        if topic is None or number >= len(topic.partitions):
            return None
        return topic.partitions[number].leader_epoch

    def coming(self, key: str) -> "asyncio.Future[None] | None":
        """What to wait for before asking about `key`; None if that can be answered, or refused.

        Done when the shard serves, when it will not, or when TAKING_OFFICE_MAX_S have passed.
        """
        number = self.partition_of(key)
        runner = self._runners.get(number)
        if not (self._should_lead(number) if runner is None else runner.is_loading):
            return None
        coming = self._coming.get(number)
        if coming is None:
            coming = self._coming[number] = self._loop.create_future()
            self._loop.call_later(TAKING_OFFICE_MAX_S, self._on_come, number, coming)
        return coming

    def _should_lead(self, number: int) -> bool:
        state = self._partitions.image.topics[self.topic].partitions[number]
        partition = TopicPartition(self.topic, number)
        return state.leader == self._broker_id and not self._partitions.is_marked_offline(partition)

    def _on_come(self, number: int, coming: "asyncio.Future[None] | None") -> None:
        """Whoever waits for the shard of `number` is to ask now: all, or those with `coming`."""
        waited_for = self._coming.get(number)
        if waited_for is not None and coming in (None, waited_for):
            del self._coming[number]
            waited_for.set_result(None)

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
        if partition.leader is None or partition.is_offline:
            self._on_come(number, None)
        else:
            self._runners[number] = ShardRunner(
                self._kind,
                partition,
                clock=self._clock,
                hash_key=self._hash_key,
                loads=self._loads[partition.log_directory],
                loop=self._loop,
                tasks=self._tasks,
                reply_timeout_ms=self._reply_timeout_ms,
                load_bytes=self._load_bytes,
                on_active=partial(self._on_come, number, None),
            )

    def end(self) -> None:
        """This broker stops: whoever waits is to look for another."""
        for runner in self:
            runner.end()
        for number in tuple(self._coming):
            self._on_come(number, None)

    def _on_marker(self, partition: PartitionRunner, marker: Marker, end_offset: Offset) -> None:
        runner = self._runners.get(partition.partition)
        if runner is not None:
            runner.on_transaction_ended(
                Transactional(marker.producer_id, marker.producer_epoch),
                is_committed=marker.end.control_type is ControlType.COMMIT,
                end_offset=end_offset,
            )


def after(
    coming: "asyncio.Future[None]", ask: Callable[[], "asyncio.Future[object]"]
) -> "asyncio.Future[object]":
    """What `ask` leads to once `coming` is done. Whoever stops waiting cancels the future."""
    answer: asyncio.Future[object] = coming.get_loop().create_future()

    def on_come(_coming: "asyncio.Future[None]") -> None:
        if answer.done():
            return
        try:
            asked = ask()
        except RequestRefused as refused:
            answer.set_exception(refused)
            answer.exception()
            return
        pass_on(asked, answer)

    coming.add_done_callback(on_come)
    return answer


def pass_on(asked: "asyncio.Future[object]", answer: "asyncio.Future[object]") -> None:
    """Let `answer` be what `asked` will be; whoever stops waiting for it cancels both."""
    answer.add_done_callback(lambda _: asked.cancel())
    asked.add_done_callback(partial(settle, answer))


def settle(answer: "asyncio.Future[object]", asked: "asyncio.Future[object]") -> None:
    """Let `answer` be what `asked` is, unless nobody waits for it any more."""
    if answer.done() or asked.cancelled():
        return
    error = asked.exception()
    if error is None:
        answer.set_result(asked.result())
    else:
        answer.set_exception(error)
        answer.exception()  # Whoever asked may not be there any more to take it.
