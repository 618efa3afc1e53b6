"""TxnOffsetCommit (28): how far a group has come, if a transaction is committed (D3).

What it says is written to the group's partition of `__consumer_offsets` as part of the producer's
transaction, and counts when the marker of that transaction arrives there. So that partition has to
be part of the transaction, and its coordinator is asked about it like about any other (KIP-890):
from version 5 on the commit itself adds it. What it says counts for who still waits, and in the
epoch in which it was asked.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import (
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.base.ports import Clock
from tidelog.broker.coordinators import settle
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.coordinated import Begun, Outcome
from tidelog.broker.handlers.offset_commit import KnownPartition, partition_commits
from tidelog.broker.partitions import Partitions
from tidelog.broker.produce_verification import known_code
from tidelog.broker.shard_runner import ShardRunner
from tidelog.broker.transaction_verifier import Question, Verifier
from tidelog.core.coordinators import Effects, Token, Transactional
from tidelog.core.groups.group import Committer
from tidelog.core.groups.requests import CommitRequest
from tidelog.core.groups.shard import GroupShard
from tidelog.core.transactions.verification import Guard
from tidelog.wire.api import RequestHeader
from tidelog.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    decode_txn_offset_commit,
    encode_txn_offset_commit_response,
)

FIRST_THAT_KNOWS_LOADING: Final = 2
FIRST_WITH_TRANSACTION_ABORTABLE: Final = 4
FIRST_THAT_ADDS: Final = 5


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitApi:
    """Partitions that nobody knows are refused here, the others decided upon by the shard."""

    groups: GroupCoordinator
    partitions: Partitions
    verifier: Verifier
    is_verifying: Callable[[], bool]
    """`transaction.partition.verification.enable`, which is for older clients."""
    clock: Clock
    loop: asyncio.AbstractEventLoop
    tasks: asyncio.TaskGroup

    def decode(self, view: memoryview, position: int, version: int) -> TxnOffsetCommitRequest:
        return decode_txn_offset_commit(view, position, version)

    def begin(self, request: TxnOffsetCommitRequest, header: RequestHeader) -> Begun:
        known = {one.partition: one for one in self._known(request)}

        def finish(outcomes: Sequence[Outcome]) -> bytes:
            topics = _answered(request, known, outcomes[0] if outcomes else [], header.api_version)
            return encode_txn_offset_commit_response(
                header.api_version, header.correlation_id, topics, throttle_ms=0
            )

        if not known:
            return Begun([], finish)
        return Begun([self._commit(request, list(known.values()), header.api_version)], finish)

    def _known(self, request: TxnOffsetCommitRequest) -> Iterator[KnownPartition]:
        for name, offsets in request.topics:
            topic = self.partitions.image.topics.get(name)
            for wanted in offsets:
                if topic is not None and 0 <= wanted.partition < len(topic.partitions):
                    partition = TopicPartition(name, wanted.partition)
                    yield KnownPartition(partition, topic.topic_id, wanted)

    def _commit(
        self, request: TxnOffsetCommitRequest, known: Sequence[KnownPartition], version: int
    ) -> "asyncio.Future[object]":
        try:
            coming = self.groups.shards.coming(request.group_id)
            if coming is not None:
                return self.groups.shards.later(
                    request.group_id, coming, lambda: self._commit_now(request, known, version)
                )
            return self._commit_now(request, known, version)
        except RequestRefused as refusal:
            return self.groups.refuse(refusal.code)

    def _commit_now(
        self, request: TxnOffsetCommitRequest, known: Sequence[KnownPartition], version: int
    ) -> "asyncio.Future[object]":
        """Raises RequestRefused if this broker does not coordinate the group."""
        adds = version >= FIRST_THAT_ADDS
        runner = self.groups.shards.of(request.group_id)
        partition = runner.partition
        guard = partition.producers.begin_verification(
            request.producer_id,
            request.producer_epoch,
            sequence=NO_SEQUENCE,
            bumps_epoch=adds,
            now_ms=self.clock.now_ms(),
        )
        if guard is None or not (adds or self.is_verifying()):
            return self._ask(request, known, guard)
        answer: asyncio.Future[object] = self.loop.create_future()
        question = Question(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (partition.topic_partition,),
            adds,
        )
        commit = partial(self._ask, request, known, guard)
        self.tasks.create_task(self._verify(answer, question, runner, commit, version))
        return answer

    async def _verify(
        self,
        answer: "asyncio.Future[object]",
        question: Question,
        runner: ShardRunner[GroupShard],
        commit: Callable[[], "asyncio.Future[object]"],
        version: int,
    ) -> None:
        """Commits have no sequence: one that comes late would be part of the next transaction."""
        (code,) = (await self.verifier.verify(question)).values()
        if answer.done():
            return  # Whoever has gone may have asked again, and have gone on.
        if code is not ErrorCode.NONE:
            settle(answer, self.groups.refuse(_told(code, version)))
        elif runner.is_ended:
            settle(answer, self.groups.refuse(ErrorCode.NOT_COORDINATOR))
        else:
            committed = commit()
            committed.add_done_callback(partial(settle, answer))

    def _ask(
        self, request: TxnOffsetCommitRequest, known: Sequence[KnownPartition], guard: Guard | None
    ) -> "asyncio.Future[object]":
        """Have the shard commit, which is not to find out in its log that it may not."""

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Effects:
            producers = self.groups.shards.of(request.group_id).partition.producers
            producers.on_coordinator_batch(request.producer_id, request.producer_epoch, guard)
            producer = Transactional(
                ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
            )
            commit = _to_core(request, known, now_ms)
            return shard.on_transactional_commit(commit, producer, token, now_ms)

        return self.groups.ask(request.group_id, decide)


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a client is told of what its transaction's coordinator says."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        # It does not expect that one, and after this one it just tries again.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return known_code(code, knows_abortable=version >= FIRST_WITH_TRANSACTION_ABORTABLE)


def _to_core(
    request: TxnOffsetCommitRequest, known: Sequence[KnownPartition], now_ms: int
) -> CommitRequest:
    committer = Committer(request.generation_id, request.member_id, request.group_instance_id)
    offsets = partition_commits(known, now_ms=now_ms, expire_ms=NO_TIMESTAMP)
    return CommitRequest(request.group_id, committer, offsets, ErrorCode.ILLEGAL_GENERATION)


def _answered(
    request: TxnOffsetCommitRequest,
    known: dict[TopicPartition, KnownPartition],
    told: Outcome,
    version: int,
) -> list[tuple[str, list[tuple[int, int]]]]:
    if isinstance(told, RequestRefused):
        code = told.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_THAT_KNOWS_LOADING:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        codes = dict.fromkeys(known, code)
    else:
        codes = dict(zip(known, cast(Sequence[ErrorCode], told), strict=True))
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [
        (
            name,
            [
                (one.partition, codes.get(TopicPartition(name, one.partition), missing))
                for one in offsets
            ],
        )
        for name, offsets in request.topics
    ]
