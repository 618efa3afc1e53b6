"""Asks transaction coordinators about partitions that producers write to (KIP-890).

    question ──▶ by coordinator ──▶ one request at a time ──▶ coordinator, here or elsewhere
                      ▲             of all that is to be asked        │
                      └── asked again soon ◀── busy with the last ────┴──▶ code by partition
                                               transaction

A producer of transaction version 2 adds a partition to its transaction by writing to it: the broker
that it writes to says so on its behalf. An older one has said so itself, and the broker asks
whether it has.

Rules:

    A1  What waits for a coordinator while a request is under way goes there in the next, together.
    A2  Whoever asks is answered. Without a coordinator, or without its answer, the codes say so;
        the producer tries again.
    A3  A coordinator that is still busy with the producer's last transaction is asked again for a
        while: producers expect that code only of the first write, and then wait for long.
    A4  A coordinator that has left the cluster is not waited for.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.broker.broker_peers import BrokerPeers, Connect
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers import Peer
from tidelog.core.controller.changes import Change
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.names import TRANSACTION_STATE
from tidelog.core.coordinators import partition_of
from tidelog.wire.add_partitions_to_txn import (
    AddedPartitions,
    AddedResult,
    decode_add_partitions_to_txn_response,
    encode_add_partitions_to_txn_request,
)
from tidelog.wire.api import ApiKey, decode_response_header

VERSION: Final = 5
QUESTIONS_PER_REQUEST: Final = 1_000
FIRST_BACKOFF_S: Final = 0.002
"""About as long as the markers of a transaction take; doubled up to the setting."""

Codes = Mapping[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """Whether a transaction reaches to `partitions`; if `is_addition`, it is to do so from now."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    is_addition: bool


class Verifier(Protocol):
    """Knows whom to ask. What it returns has a code for each partition, and never fails."""

    async def verify(self, question: Question) -> Codes: ...


AskHere = Callable[[Sequence[AddedPartitions]], Awaitable[Sequence[AddedResult]]]
"""Asks the coordinator on this broker."""


class _Waiting(NamedTuple):
    question: Question
    codes: "asyncio.Future[Codes]"


@dataclass(slots=True)
class _Channel:
    """What one coordinator is to be asked."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    is_busy: bool = False


class TransactionVerifier:
    """Every method is called on the event loop."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        partitions: Partitions,
        connect: Connect,
        ask_here: AskHere,
        retry_backoff_ms: int,
        retry_max_ms: int,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """`connect` makes the connection over which another broker is asked."""
        self._peers = BrokerPeers(broker_id, connect)
        self._partitions = partitions
        self._ask_here = ask_here
        self._retry_backoff_s = retry_backoff_ms / 1000
        self._retry_max_s = retry_max_ms / 1000
        self._loop = loop
        self._tasks = tasks
        self._channels: dict[BrokerId, _Channel] = {}
        self._client_id = f"broker-{broker_id}-txn-verifier"

    async def verify(self, question: Question) -> Codes:
        """What the coordinator says of each partition. A2, A3"""
        until_s = self._loop.time() + self._retry_max_s
        backoff_s = FIRST_BACKOFF_S
        while True:
            codes = await self._ask(question)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not is_busy or not question.is_addition or self._loop.time() >= until_s:
                return codes
            await asyncio.sleep(min(backoff_s, self._retry_backoff_s))
            backoff_s *= 2

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """A4"""
        self._peers.on_image(image, changes)

    def close(self) -> None:
        self._peers.close()

    async def _ask(self, question: Question) -> Codes:
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator is None:
            return dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        codes: asyncio.Future[Codes] = self._loop.create_future()
        channel = self._channels.setdefault(coordinator, _Channel())
        channel.waiting.append(_Waiting(question, codes))
        if not channel.is_busy:
            channel.is_busy = True
            self._tasks.create_task(self._run(coordinator, channel))
        return await codes  # Ended by the answer, or by a connection without one. A2

    def _coordinator_of(self, transactional_id: str) -> BrokerId | None:
        image = self._partitions.image
        topic = image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        return leader if leader in image.brokers else None

    async def _run(self, coordinator: BrokerId, channel: _Channel) -> None:
        """One request after the other, as long as somebody waits. A1"""
        try:
            while channel.waiting:
                taken = [
                    channel.waiting.popleft()
                    for _ in range(min(len(channel.waiting), QUESTIONS_PER_REQUEST))
                ]
                results = await self._results(coordinator, [one[0] for one in taken])
                for number, (question, codes) in enumerate(taken):
                    if not codes.done():
                        codes.set_result(_codes(question, results, number))
        finally:
            channel.is_busy = False
            for _, codes in channel.waiting:  # The broker stops.
                codes.cancel()

    async def _results(
        self, coordinator: BrokerId, questions: Iterable[Question]
    ) -> Sequence[AddedResult]:
        """In the order of the questions; none at all if there is no answer."""
        asked = [_asked(question) for question in questions]
        results = await self._peers.ask(
            coordinator,
            here=partial(self._ask_here, asked),
            there=partial(self._ask_peer, asked),
        )
        return results or ()

    async def _ask_peer(
        self, asked: Sequence[AddedPartitions], peer: Peer
    ) -> Sequence[AddedResult]:
        frame = encode_add_partitions_to_txn_request(
            VERSION, peer.next_correlation_id(), self._client_id, asked
        )
        answer = await peer.request(frame)
        _, position = decode_response_header(answer, ApiKey.ADD_PARTITIONS_TO_TXN, VERSION)
        response = decode_add_partitions_to_txn_response(answer, position, VERSION)
        if response.error_code == ErrorCode.NONE:
            return response.results
        return [_refused(one, response.error_code) for one in asked]


def _asked(question: Question) -> AddedPartitions:
    topics: dict[str, list[int]] = {}
    for topic, partition in question.partitions:
        topics.setdefault(topic, []).append(partition)
    return AddedPartitions(
        question.transactional_id,
        question.producer_id,
        question.producer_epoch,
        not question.is_addition,
        list(topics.items()),
    )


def _refused(asked: AddedPartitions, code: int) -> AddedResult:
    return AddedResult(
        asked.transactional_id,
        [(topic, [(partition, code) for partition in named]) for topic, named in asked.topics],
    )


def _codes(question: Question, results: Sequence[AddedResult], number: int) -> Codes:
    """A partition of which nothing is said is not vouched for."""
    codes = dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
    if number < len(results) and results[number].transactional_id == question.transactional_id:
        for topic, partitions in results[number].topics:
            for partition, code in partitions:
                codes[TopicPartition(topic, partition)] = ErrorCode(code)
    return codes
