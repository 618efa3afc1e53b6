"""D3: whatever happens, and whatever is lost, a transaction ends once and for all.

Producers, new instances of them, time-outs, crashes that lose what was not committed, and markers
that arrive late, never or twice. Checked all along:

    - a transaction never commits and aborts: no partition is told both, and behind a Prepare record
      there is the Complete record of the same outcome,
    - a producer that was told of success can count on it: the log says so, committed,
    - only the newest id and epoch changes anything,
    - nobody who waits is answered twice, and nobody is left waiting by a coordinator that lives on,
    - when crashes are over and markers arrive, everything that was prepared completes.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.core.transactions.asked import LIMITS, TIMEOUT_MS, partitions
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.core.coordinators import Effects, Perform, Reply, Token, Write
from tidelog.core.transactions.answers import PartitionsAnswer, ProducerAnswer, WriteMarkers
from tidelog.core.transactions.coordinator import TransactionShard
from tidelog.core.transactions.initializing import Claim
from tidelog.records.transactions import (
    COMPLETE,
    EPOCH_MAX,
    PREPARED,
    TransactionMetadata,
    TransactionState,
)

IDS = ("a", "b")
NUMBERS = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)


@dataclass
class Waiting:
    """A request, and what has to be true when it is answered."""

    on_answer: Callable[[object], None]
    waits_for: str | None
    """The id whose last transaction may have to be completed before."""


@dataclass
class Unheld:
    """What may be let out when `record_count` records are committed."""

    record_count: int
    effect: Reply | Perform


class TransactionHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.tokens = count()
        self.producer_ids = count(100)
        self.numbers = count()
        self.log: list[TransactionMetadata] = []
        self.committed_count = 0
        self.held: list[Unheld] = []
        self.waiting: dict[Token, Waiting] = {}
        self.claims: dict[str, list[Claim]] = {name: [] for name in IDS}
        self.markers: list[WriteMarkers] = []
        self.outcomes: dict[tuple[int, int, TopicPartition], bool] = {}
        # By the place of its Prepare record in the log.
        self.places: dict[int, int] = {}
        self.told: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self.coordinator_count = 0
        self.load()

    # -- the world around a shard ------------------------------------------------------------------

    def load(self) -> None:
        self.coordinator_count += 1
        self.told = defaultdict(
            set, {place: told for place, told in self.told.items() if place < len(self.log)}
        )
        self.shard = TransactionShard(
            limits=replace(LIMITS, id_expiration_ms=10**12),
            coordinator_epoch=self.coordinator_count,
            take_producer_id=lambda: ProducerId(next(self.producer_ids)),
            numbers=self.numbers,
        )
        for record in self.log:
            self.shard.replay(record)
        self.perform(self.shard.on_loaded(self.now_ms))

    def perform(self, effects: Effects) -> int:
        """Returns how many records were written."""
        before = len(self.log)
        for effect in effects:
            if isinstance(effect, Reply) and not effect.is_held:
                self.waiting.pop(effect.token).on_answer(effect.answer)
            elif isinstance(effect, Write):
                for record in effect.records:
                    assert isinstance(record, TransactionMetadata)
                    if record.state in COMPLETE:
                        self.check_told(record.transactional_id)
                    # As it will be read.
                    self.log.append(replace(record, last_producer_epoch=ProducerEpoch(-1)))
            else:
                self.held.append(Unheld(len(self.log), effect))
                if isinstance(effect, Perform):
                    assert isinstance(effect.deed, WriteMarkers)
                    place = self.place(effect.deed.transactional_id)
                    self.places[effect.deed.number] = place
        self.release()
        return len(self.log) - before

    def release(self) -> None:
        while self.held and self.held[0].record_count <= self.committed_count:
            effect = self.held.pop(0).effect
            if isinstance(effect, Reply):
                self.waiting.pop(effect.token).on_answer(effect.answer)
            else:
                assert isinstance(effect.deed, WriteMarkers)
                self.markers.append(effect.deed)

    def ask(
        self,
        request: Callable[[Token], Effects],
        on_answer: Callable[[object], None] = lambda _answer: None,
        waits_for: str | None = None,
    ) -> int:
        token = Token(next(self.tokens))
        self.waiting[token] = Waiting(on_answer, waits_for)
        return self.perform(request(token))

    def known(self, name: str) -> TransactionMetadata | None:
        records = [record for record in self.log if record.transactional_id == name]
        return records[-1] if records else None

    def place(self, name: str) -> int:
        """Where the last record of `name` is."""
        places = [place for place, record in enumerate(self.log) if record.transactional_id == name]
        return places[-1]

    def check_told(self, name: str) -> None:
        """Every partition of the prepared transaction has its marker, and not another one's."""
        place = self.place(name)
        assert self.log[place].state in PREPARED
        assert self.told[place] == self.log[place].partitions

    def require_newest(self, name: str, claim: Claim, before: TransactionMetadata | None) -> None:
        assert before is not None
        assert (before.producer_id, before.producer_epoch) == claim, "an old epoch did something"

    # -- what happens ------------------------------------------------------------------------------

    @rule(name=st.sampled_from(IDS), nth=st.integers(0, 3), timeout_ms=st.integers(1, TIMEOUT_MS))
    def initializes(self, name: str, nth: int, timeout_ms: int) -> None:
        claims = self.claims[name]
        claim = claims[-nth] if 0 < nth <= len(claims) else None

        def on_answer(answer: object) -> None:
            assert isinstance(answer, ProducerAnswer)
            if answer.code is ErrorCode.NONE:
                claims.append(Claim(answer.producer_id, answer.producer_epoch))

        self.ask(
            lambda token: self.shard.on_init_producer_id(
                name, timeout_ms=timeout_ms, claim=claim, token=token, now_ms=self.now_ms
            ),
            on_answer,
        )

    @precondition(lambda self: any(self.claims.values()))
    @rule(
        data=st.data(),
        numbers=NUMBERS,
        version=st.sampled_from([0, 2]),
        may_wait=st.booleans(),
    )
    def adds(self, data: st.DataObject, numbers: list[int], version: int, may_wait: bool) -> None:
        name, claim = self.draw_claim(data)
        before = self.known(name)
        written = self.ask(
            lambda token: self.shard.on_add_partitions(
                name,
                producer=claim,
                partitions=partitions(*numbers),
                client_version=version,
                may_wait=may_wait,
                token=token,
                now_ms=self.now_ms,
            ),
            self.check_added(name, numbers),
            waits_for=name,
        )
        if written:
            self.require_newest(name, claim, before)

    def check_added(self, name: str, numbers: list[int]) -> Callable[[object], None]:
        def on_answer(answer: object) -> None:
            assert isinstance(answer, PartitionsAnswer)
            if ErrorCode.NONE in answer.codes.values():
                committed = self.log[: self.committed_count]
                added = frozenset(partitions(*numbers))
                assert any(
                    record.transactional_id == name and added <= record.partitions
                    for record in committed
                )

        return on_answer

    @precondition(lambda self: any(self.claims.values()))
    @rule(data=st.data(), is_commit=st.booleans(), version=st.sampled_from([0, 2]))
    def ends(self, data: st.DataObject, is_commit: bool, version: int) -> None:
        name, claim = self.draw_claim(data)
        before = self.known(name)
        decided: list[TransactionMetadata | None] = []

        def on_answer(answer: object) -> None:
            assert isinstance(answer, ProducerAnswer)
            if answer.code is ErrorCode.NONE:
                ended = decided[0] if decided else self.known(name)
                assert ended is not None
                assert ended.state.title.endswith("Commit") == is_commit
                self.check_ended(name, claim, is_commit=is_commit)
                if version:
                    self.claims[name].append(Claim(answer.producer_id, answer.producer_epoch))

        written = self.ask(
            lambda token: self.shard.on_end(
                name,
                producer=claim,
                is_commit=is_commit,
                client_version=version,
                token=token,
                now_ms=self.now_ms,
            ),
            on_answer,
        )
        decided.append(self.known(name))
        if written:
            self.require_newest(name, claim, before)

    def check_ended(self, name: str, claim: Claim, *, is_commit: bool) -> None:
        """The log says so: a Prepare record of the producer, with its epoch or the next."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        assert any(
            record.transactional_id == name
            and record.state is state
            and record.producer_id == claim.producer_id
            and record.producer_epoch - claim.producer_epoch in (0, 1)
            for record in self.log[: self.committed_count]
        )

    @precondition(lambda self: self.committed_count < len(self.log))
    @rule(data=st.data())
    def replicas_catch_up(self, data: st.DataObject) -> None:
        self.committed_count = data.draw(st.integers(self.committed_count + 1, len(self.log)))
        self.release()

    @rule(data=st.data())
    def coordinator_crashes(self, data: st.DataObject) -> None:
        """What was not committed may be lost, from some record on."""
        del self.log[data.draw(st.integers(self.committed_count, len(self.log))) :]
        self.committed_count = len(self.log)
        self.held.clear()
        self.waiting.clear()
        self.load()

    @precondition(lambda self: self.markers)
    @rule(data=st.data(), numbers=NUMBERS)
    def markers_arrive(self, data: st.DataObject, numbers: list[int]) -> None:
        """Some of them, now; they stay, to arrive again, whoever coordinates by then."""
        deed = data.draw(st.sampled_from(self.markers))
        self.deliver(deed, frozenset(partitions(*numbers)) & deed.partitions)

    def deliver(self, deed: WriteMarkers, told: frozenset[TopicPartition]) -> None:
        for partition in told if deed.transaction_version else ():
            key = (deed.producer_id, deed.producer_epoch, partition)
            assert self.outcomes.setdefault(key, deed.is_commit) is deed.is_commit
        if deed.coordinator_epoch == self.coordinator_count:
            self.told[self.places[deed.number]] |= told
        # Whoever asked may be gone: its answers do not count.
        self.ask(
            lambda token: self.shard.on_markers_written(
                deed.transactional_id, deed.number, told, token=token, now_ms=self.now_ms
            )
        )

    @precondition(lambda self: self.markers)
    @rule(data=st.data())
    def markers_are_lost(self, data: st.DataObject) -> None:
        self.markers.remove(data.draw(st.sampled_from(self.markers)))
        self.coordinator_crashes(data)

    @rule(passed_ms=st.integers(0, TIMEOUT_MS))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.perform(self.shard.on_tick(self.now_ms))

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def epochs_are_used_up(self, data: st.DataObject) -> None:
        """As if thousands of transactions had been aborted meanwhile."""
        name = data.draw(st.sampled_from(IDS))
        known = self.known(name)
        if known is None or known.state in PREPARED or self.committed_count < len(self.log):
            return
        spent = ProducerEpoch(EPOCH_MAX - 1)
        self.log.append(replace(known, producer_epoch=spent))
        self.committed_count = len(self.log)
        self.claims[name].append(Claim(known.producer_id, spent))
        self.coordinator_crashes(data)

    def draw_claim(self, data: st.DataObject) -> tuple[str, Claim]:
        name = data.draw(st.sampled_from([name for name in IDS if self.claims[name]]))
        # The newest are the interesting ones.
        return name, data.draw(st.sampled_from(self.claims[name][-4:]))

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def outcome_is_what_was_prepared(self) -> None:
        for name in IDS:
            records = [record for record in self.log if record.transactional_id == name]
            for before, after in pairwise(records):
                if before.state in PREPARED:
                    assert after.state.title == before.state.title.replace("Prepare", "Complete")
                else:
                    assert after.state not in COMPLETE or after.state is before.state

    @invariant()
    def everybody_who_waits_will_be_answered(self) -> None:
        tokens = [unheld.effect.token for unheld in self.held if isinstance(unheld.effect, Reply)]
        assert len(set(tokens)) == len(tokens)
        for token in self.waiting.keys() - set(tokens):
            name = self.waiting[token].waits_for
            assert name is not None
            known = self.known(name)
            assert known is not None
            assert known.state in PREPARED

    def teardown(self) -> None:
        """Nothing crashes any more, and every marker arrives."""
        for _ in range(2):
            self.committed_count = len(self.log)
            self.release()
            for deed in tuple(self.markers):
                self.deliver(deed, deed.partitions)
        self.committed_count = len(self.log)
        self.release()
        # Some have waited for their last transaction, and begun the next.
        self.committed_count = len(self.log)
        self.release()
        assert not self.waiting
        for name in IDS:
            known = self.known(name)
            assert known is None or known.state not in PREPARED


TestTransactionHistories = TransactionHistories.TestCase
