"""Tells the leaders of partitions how transactions ended (WriteTxnMarkers), until they know.

    shard ──WriteMarkers──▶ by leader ──▶ one request at a time ──▶ leader
      ▲                        ▲          of all that is to be told     │
      └── on_markers_written ──┼──────────────── done ◀─────────────────┤
                               └── backoff ◀──── not now, not the leader, no answer

Rules:

    K1  What waits for a broker while a request is under way goes there in the next one, together.
    K2  A partition is told until it says that it knows, whoever leads it by then. One that is gone
        from the cluster needs no marker.
    K3  Markers that their shard does not wait for any more are not sent: another shard, or another
        broker, has taken over, and by now the producer may be in its next transaction.
    K4  The shard is told when it can write that down; until then it is told again.
    K5  A broker that has left the cluster is not waited for: whoever leads instead is told.

A leader that has a newer epoch of the producer than the marker's knows enough: the transaction is
not open there any more, and never will be.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.broker.broker_peers import BrokerPeers, Connect
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers import Peer
from tidelog.broker.shard_runner import ShardRunner
from tidelog.core.controller.changes import Change
from tidelog.core.controller.image import ClusterImage
from tidelog.core.coordinators import NO_EFFECTS, Effects, Token
from tidelog.core.transactions.answers import WriteMarkers
from tidelog.core.transactions.coordinator import TransactionShard
from tidelog.wire.api import ApiKey, decode_response_header
from tidelog.wire.write_txn_markers import (
    MarkerResult,
    TransactionMarker,
    decode_write_txn_markers_response,
    encode_write_txn_markers_request,
)

logger = logging.getLogger(__name__)

VERSION = 2
RETRY_BACKOFF_S = 0.02
RETRY_BACKOFF_MAX_S = 1.0
MARKERS_PER_REQUEST = 1_000

_KNOWING = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""After these there is nothing to tell any more."""

WriteHere = Callable[[Sequence[TransactionMarker]], Awaitable[Sequence[MarkerResult]]]
"""Writes markers to partitions that this broker leads."""


@dataclass(eq=False, slots=True)
class Sending:
    """The markers of one transaction, and the shard that wants them sent."""

    runner: ShardRunner[TransactionShard]
    markers: WriteMarkers
    attempts: int = 0

    @property
    def is_wanted(self) -> bool:
        """K3"""
        markers = self.markers
        wanted = False

        def look(shard: TransactionShard, _now_ms: int) -> Effects:
            nonlocal wanted
            wanted = shard.awaits_markers(markers.transactional_id, markers.number)
            return NO_EFFECTS

        self.runner.tell(look)
        return wanted

    def tell_shard(self, partitions: Iterable[TopicPartition]) -> "asyncio.Future[object]":
        """These know."""
        markers = self.markers

        def decide(shard: TransactionShard, token: Token, now_ms: int) -> Effects:
            return shard.on_markers_written(
                markers.transactional_id, markers.number, partitions, token=token, now_ms=now_ms
            )

        return self.runner.ask(decide)

    def marker(self, partitions: Iterable[TopicPartition]) -> TransactionMarker:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)
        markers = self.markers
        return TransactionMarker(
            markers.producer_id,
            markers.producer_epoch,
            markers.is_commit,
            list(topics.items()),
            markers.coordinator_epoch,
            markers.transaction_version,
        )


_Untold = dict[Sending, set[TopicPartition]]


@dataclass(slots=True)
class _Channel:
    """What one broker is to be told."""

    untold: _Untold = field(default_factory=dict)
    is_busy: bool = False


class MarkerSender:
    """Every method is called on the event loop."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        partitions: Partitions,
        connect: Connect,
        write_here: WriteHere,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._peers = BrokerPeers(broker_id, connect)
        self._partitions = partitions
        self._write_here = write_here
        self._loop = loop
        self._tasks = tasks
        self._channels: dict[BrokerId, _Channel] = {}
        self._client_id = f"broker-{broker_id}-txn-marker-sender"

    def send(self, runner: ShardRunner[TransactionShard], markers: WriteMarkers) -> None:
        """Have every partition know; `runner`'s shard hears of those that do.

        Begun in the next turn: the shard is in the middle of what it decides.
        """
        self._loop.call_soon(self._route, Sending(runner, markers), markers.partitions)

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """K5"""
        self._peers.on_image(image, changes)

    def close(self) -> None:
        self._peers.close()

    def _route(self, sending: Sending, partitions: Iterable[TopicPartition]) -> None:
        """To whoever leads them now. K2, K3"""
        if not sending.is_wanted:
            return
        gone: set[TopicPartition] = set()
        leaderless: set[TopicPartition] = set()
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                gone.add(partition)
            elif leader == NO_BROKER:
                leaderless.add(partition)
            else:
                channel = self._channels.setdefault(leader, _Channel())
                channel.untold.setdefault(sending, set()).add(partition)
                self._begin(leader, channel)
        if leaderless:
            self._route_later(sending, leaderless)
        if gone or not sending.markers.partitions:
            self._on_told(sending, gone)

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        """None if there is no such partition any more."""
        image = self._partitions.image
        topic = image.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        leader = topic.partitions[partition.partition].leader
        return leader if leader in image.brokers else NO_BROKER

    def _route_later(self, sending: Sending, partitions: Iterable[TopicPartition]) -> None:
        self._loop.call_later(_backoff_s(sending), self._route, sending, partitions)

    def _begin(self, leader: BrokerId, channel: _Channel) -> None:
        if not channel.is_busy:
            channel.is_busy = True
            self._tasks.create_task(self._run(leader, channel))

    async def _run(self, leader: BrokerId, channel: _Channel) -> None:
        """One request after the other, as long as there is something to say. K1"""
        try:
            while channel.untold:
                untold = _taken(channel)
                if untold:
                    await self._tell(leader, untold)
        finally:
            channel.is_busy = False

    async def _tell(self, leader: BrokerId, untold: _Untold) -> None:
        request = [sending.marker(partitions) for sending, partitions in untold.items()]
        results = await self._peers.ask(
            leader,
            here=partial(self._write_here, request),
            there=partial(self._ask, request),
        )
        # A producer is in it once: what another shard wants told of it is not wanted any more. K3
        codes = {result.producer_id: result.codes() for result in results or ()}
        for sending, partitions in untold.items():
            self._take_codes(sending, partitions, codes.get(sending.markers.producer_id, {}))

    async def _ask(
        self, request: Sequence[TransactionMarker], peer: Peer
    ) -> Sequence[MarkerResult]:
        frame = encode_write_txn_markers_request(
            VERSION, peer.next_correlation_id(), self._client_id, request
        )
        answer = await peer.request(frame)
        _, position = decode_response_header(answer, ApiKey.WRITE_TXN_MARKERS, VERSION)
        return decode_write_txn_markers_response(answer, position, VERSION)

    def _take_codes(
        self, sending: Sending, asked: set[TopicPartition], codes: Mapping[TopicPartition, int]
    ) -> None:
        told = {partition for partition in asked if codes.get(partition) in _KNOWING}
        untold = asked - told
        if told:
            self._on_told(sending, told)
        if untold:
            logger.debug(
                "markers not taken",
                extra={"id": sending.markers.transactional_id, "partitions": len(untold)},
            )
            self._route_later(sending, untold)
        else:
            sending.attempts = 0

    def _on_told(self, sending: Sending, partitions: set[TopicPartition]) -> None:
        """K4"""
        heard = sending.tell_shard(partitions)
        if not heard.done():
            heard.add_done_callback(lambda _: self._on_heard(sending, partitions, heard))
        else:
            self._on_heard(sending, partitions, heard)

    def _on_heard(
        self,
        sending: Sending,
        partitions: set[TopicPartition],
        heard: "asyncio.Future[object]",
    ) -> None:
        refusal = None if heard.cancelled() else heard.exception()
        if isinstance(refusal, RequestRefused) and (
            refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        ):
            self._loop.call_later(_backoff_s(sending), self._tell_again, sending, partitions)

    def _tell_again(self, sending: Sending, partitions: set[TopicPartition]) -> None:
        if sending.is_wanted:
            self._on_told(sending, partitions)


def _taken(channel: _Channel) -> _Untold:
    """What goes into the next request: of those that are wanted, not more than fit."""
    taken: _Untold = {}
    while channel.untold and len(taken) < MARKERS_PER_REQUEST:
        sending, partitions = next(iter(channel.untold.items()))
        del channel.untold[sending]
        if sending.is_wanted:
            taken[sending] = partitions
    return taken


def _backoff_s(sending: Sending) -> float:
    backoff_s = min(RETRY_BACKOFF_S * (1 << sending.attempts), RETRY_BACKOFF_MAX_S)
    sending.attempts = min(sending.attempts + 1, 10)
    return backoff_s
