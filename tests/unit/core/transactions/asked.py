"""A transaction coordinator that is asked one thing at a time, with time that stands still."""

from dataclasses import dataclass, field
from itertools import count

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.core.coordinators import Effects, Perform, Reply, Token, Write
from tidelog.core.transactions.answers import (
    PartitionsAnswer,
    ProducerAnswer,
    TransactionLimits,
    WriteMarkers,
)
from tidelog.core.transactions.coordinator import TransactionShard
from tidelog.core.transactions.initializing import Claim, NoProducerId
from tidelog.records.transactions import TransactionMetadata, TransactionRecord

TOPIC = "topic"
TIMEOUT_MS = 60_000
LIMITS = TransactionLimits(
    timeout_max_ms=900_000,
    id_expiration_ms=7 * 86_400_000,
    abort_interval_ms=10_000,
    expiry_interval_ms=3_600_000,
    wait_max_ms=100,
    record_max_bytes=1_000_000,
)


def claim(producer_id: int, epoch: int) -> Claim:
    return Claim(ProducerId(producer_id), ProducerEpoch(epoch))


def partitions(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(TOPIC, number) for number in numbers)


@dataclass
class AskedShard:
    """Asks, and keeps what the shard wants written and done."""

    limits: TransactionLimits = LIMITS
    now_ms: int = 1_000_000
    log: list[TransactionRecord] = field(default_factory=list)
    deeds: list[WriteMarkers] = field(default_factory=list)
    has_producer_ids: bool = True

    def __post_init__(self) -> None:
        self._producer_ids = count(1_000)
        self._tokens = count()
        self._numbers = count()
        self._answers: dict[Token, object] = {}
        self.load()

    def load(self) -> None:
        """Forget everything but the log, as another broker would that takes over."""
        self.deeds.clear()
        self.shard = TransactionShard(
            limits=self.limits,
            coordinator_epoch=5,
            take_producer_id=self._take_producer_id,
            numbers=self._numbers,
        )
        for record in self.log:
            self.shard.replay(record)
        self._perform(self.shard.on_loaded(self.now_ms))

    def state(self, transactional_id: str) -> TransactionMetadata:
        """What the log says last."""
        records = [record for record in self.log if record.transactional_id == transactional_id]
        metadata = records[-1]
        assert isinstance(metadata, TransactionMetadata)
        return metadata

    def init(
        self,
        transactional_id: str,
        has: Claim | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ProducerAnswer:
        token = self._token()
        try:
            effects = self.shard.on_init_producer_id(
                transactional_id,
                timeout_ms=timeout_ms,
                claim=has,
                token=token,
                now_ms=self.now_ms,
            )
        except RequestRefused as refusal:
            return ProducerAnswer(refusal.code)
        return self._producer_answer(token, effects)

    def require(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> Claim:
        """The same, and it has to succeed."""
        answer = self.init(transactional_id, timeout_ms=timeout_ms)
        assert answer.code is ErrorCode.NONE
        return Claim(answer.producer_id, answer.producer_epoch)

    def add(
        self,
        transactional_id: str,
        producer: Claim,
        added: tuple[TopicPartition, ...],
        *,
        version: int = 2,
    ) -> dict[TopicPartition, ErrorCode]:
        token, effects = self._add(transactional_id, producer, added, version, may_wait=False)
        return self._partitions_answer(token, effects)

    def begin_waiting(
        self, transactional_id: str, producer: Claim, added: tuple[TopicPartition, ...]
    ) -> Token:
        """As `add`, by somebody who can wait; the answer is `waited` for."""
        token, effects = self._add(transactional_id, producer, added, version=0, may_wait=True)
        self._perform(effects)
        return token

    def waited(self, token: Token) -> dict[TopicPartition, ErrorCode] | None:
        """None as long as there is no answer."""
        answer = self._answers.pop(token, None)
        if answer is None:
            return None
        assert isinstance(answer, PartitionsAnswer)
        return answer.codes

    def _add(
        self,
        transactional_id: str,
        producer: Claim,
        added: tuple[TopicPartition, ...],
        version: int,
        *,
        may_wait: bool,
    ) -> tuple[Token, Effects]:
        token = self._token()
        effects = self.shard.on_add_partitions(
            transactional_id,
            producer=producer,
            partitions=added,
            client_version=version,
            may_wait=may_wait,
            token=token,
            now_ms=self.now_ms,
        )
        return token, effects

    def verify(
        self, transactional_id: str, producer: Claim, asked: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, ErrorCode]:
        token = self._token()
        effects = self.shard.on_verify_partitions(
            transactional_id, producer=producer, partitions=asked, token=token
        )
        return self._partitions_answer(token, effects)

    def end(
        self, transactional_id: str, producer: Claim, *, is_commit: bool, version: int = 2
    ) -> ProducerAnswer:
        token = self._token()
        try:
            effects = self.shard.on_end(
                transactional_id,
                producer=producer,
                is_commit=is_commit,
                client_version=version,
                token=token,
                now_ms=self.now_ms,
            )
        except NoProducerId as refusal:
            return ProducerAnswer(refusal.code)
        return self._producer_answer(token, effects)

    def answer_markers(self) -> None:
        """Every partition that was sent a marker has it."""
        deeds, self.deeds[:] = list(self.deeds), []
        for deed in deeds:
            self.mark(deed, deed.partitions)

    def mark(
        self, deed: WriteMarkers, marked: frozenset[TopicPartition] | tuple[TopicPartition, ...]
    ) -> None:
        token = self._token()
        effects = self.shard.on_markers_written(
            deed.transactional_id, deed.number, marked, token=token, now_ms=self.now_ms
        )
        assert self.ask(effects, token) is None

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self._perform(self.shard.on_tick(self.now_ms))

    def tick_when_due(self) -> None:
        due_ms = self.shard.next_deadline_ms
        assert due_ms is not None
        self.tick(max(due_ms - self.now_ms, 0))

    def ask(self, effects: Effects, token: Token) -> object:
        """The answer to a request that was made otherwise."""
        self._perform(effects)
        return self._answers.pop(token)

    def _token(self) -> Token:
        return Token(next(self._tokens))

    def _take_producer_id(self) -> ProducerId:
        if not self.has_producer_ids:
            raise NoProducerId
        return ProducerId(next(self._producer_ids))

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Write(records, None):
                    assert all(isinstance(record, TransactionRecord) for record in records)
                    self.log.extend(records)  # type: ignore[arg-type]
                case Reply(token, answer):
                    assert token not in self._answers
                    self._answers[token] = answer
                case Perform(WriteMarkers() as deed):
                    self.deeds.append(deed)
                case _:
                    raise AssertionError(effect)

    def _producer_answer(self, token: Token, effects: Effects) -> ProducerAnswer:
        answer = self.ask(effects, token)
        assert isinstance(answer, ProducerAnswer)
        return answer

    def _partitions_answer(self, token: Token, effects: Effects) -> dict[TopicPartition, ErrorCode]:
        answer = self.ask(effects, token)
        assert isinstance(answer, PartitionsAnswer)
        return answer.codes
