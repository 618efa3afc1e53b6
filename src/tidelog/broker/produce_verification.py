"""Produce in a transaction: the first batch waits until the coordinator has vouched for it.

What a client is told when it has not (Kafka's codes, KIP-890):

    PRODUCER_FENCED                     INVALID_PRODUCER_EPOCH, which a producer expects of a write
    TRANSACTION_ABORTABLE               the same, or INVALID_TXN_STATE to who does not know it yet
    the coordinator is busy, moves      NOT_ENOUGH_REPLICAS: every producer tries again then, and
    or does not answer                  does not look for another leader
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.base.errors import CorruptBatch, ErrorCode, RequestRefused
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Clock
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partitions import Partitions
from tidelog.broker.transaction_verifier import Codes, Question, Verifier
from tidelog.core.transactions.verification import Guard
from tidelog.records.batch import (
    HEADER_SIZE_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from tidelog.wire.produce import ProduceRequest

FIRST_WITH_TRANSACTION_ABORTABLE: Final = 11
FIRST_THAT_ADDS: Final = 12

RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Vouched(NamedTuple):
    """What is known of the partitions of a request that needed the coordinator's word."""

    guards: Mapping[TopicPartition, Guard]
    refusals: Mapping[TopicPartition, RequestRefused]


NOTHING_VOUCHED: Final = Vouched({}, {})


class Unverified(NamedTuple):
    """A request whose coordinator is to be asked."""

    question: Question
    guards: Mapping[TopicPartition, Guard]
    size_bytes: int
    """Of all its records, which wait meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceVerification:
    """Finds out what has to be asked, and asks.

    Records that wait for a coordinator are counted for themselves: what queues up here must not
    keep this broker from answering the questions of others, who wait as well.
    """

    partitions: Partitions
    verifier: Verifier
    memory: MemoryBound
    clock: Clock
    is_enabled: Callable[[], bool]
    """`transaction.partition.verification.enable`, which is for older clients."""

    def begin(self, request: ProduceRequest, version: int) -> Unverified | Vouched:
        """What to ask before the request can be appended; `Vouched` if there is nothing.

        Raises RequestRefused if the request makes no sense as a whole.
        """
        assert request.transactional_id is not None
        adds = version >= FIRST_THAT_ADDS
        guards: dict[TopicPartition, Guard] = {}
        producer: tuple[int, int] | None = None
        for one, header in self._batches(request):
            if producer not in (None, (header.producer_id, header.producer_epoch)):
                raise RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            producer = header.producer_id, header.producer_epoch
            runner = self.partitions.find(*one)
            if runner is None or runner.leader is None:
                continue  # It is refused by who appends.
            guard = runner.producers.begin_verification(
                *producer,
                sequence=header.base_sequence,
                bumps_epoch=adds,
                now_ms=self.clock.now_ms(),
            )
            if guard is not None:
                guards[one] = guard
        if producer is None or not guards or not (adds or self.is_enabled()):
            return Vouched(guards, {})
        question = Question(request.transactional_id, *producer, tuple(guards), adds)
        return Unverified(question, guards, _size_bytes(request))

    async def ask(self, unverified: Unverified, version: int) -> Vouched:
        """What the coordinator says."""
        codes = await self.verifier.verify(unverified.question)
        return Vouched(unverified.guards, _refusals(codes, version))

    def _batches(self, request: ProduceRequest) -> Iterator[tuple[TopicPartition, BatchHeader]]:
        """Those that are part of a transaction, and where they are to go."""
        for name, topic_id, partitions in request.topics:
            topic = name if topic_id is None else self.partitions.topic_name(topic_id)
            for partition, records in partitions:
                if topic is None or records is None or len(records) < HEADER_SIZE_BYTES:
                    continue
                try:
                    header = read_header(records, 0)
                except CorruptBatch:
                    continue  # It is refused by who appends.
                if header.attributes & TRANSACTIONAL_FLAG and header.has_producer_id:
                    yield TopicPartition(topic, partition), header


def _size_bytes(request: ProduceRequest) -> int:
    return sum(
        len(records)
        for _, _, partitions in request.topics
        for _, records in partitions
        if records is not None
    )


def _refusals(codes: Codes, version: int) -> dict[TopicPartition, RequestRefused]:
    return {
        one: _refusal(code, version) for one, code in codes.items() if code is not ErrorCode.NONE
    }


def _refusal(code: ErrorCode, version: int) -> RequestRefused:
    code = known_code(code, knows_abortable=version >= FIRST_WITH_TRANSACTION_ABORTABLE)
    if code in RETRIABLE:
        return RequestRefused(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the coordinator cannot say whether the partition is in the transaction: {code.name}",
        )
    if code is ErrorCode.INVALID_TXN_STATE:
        return RequestRefused(code, "the partition was not added to the transaction")
    return RequestRefused(code)


def known_code(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """What a producer is told of a coordinator's code."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
