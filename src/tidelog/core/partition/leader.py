"""The leader's view of one partition: who is in sync, and so what is committed (R3, R6, R8).

Followers pull. A fetch for offset N says that the follower holds everything below N, so the fetch
is also the acknowledgement:

    log start      high watermark                  log end
        ├─ committed ─────┼─ held by some replicas ────┤
                          └ min over the in-sync set

Invariants, checked after every event that could break them:

    I1  log_start_offset <= high_watermark <= log_end_offset
    I2  high_watermark never moves back within one leader epoch
    I3  the leader is a member of its own isr
    I4  the isr, and a proposed one, hold assigned replicas only
    I5  at most one proposal is unanswered

An event returns the effects it has, mostly none or the one shared `ADVANCED`; a runner may compare
with `is`. The log is written before `on_append` and read after it: nothing here waits for either.

Not here: who leads (core/controller), whether a request is of this leader epoch (the runner refuses
those), and how a follower truncates (follower.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from tidelog.core.partition.effects import ADVANCED, NOTHING, Effects, ProposeIsr

ACKS_ALL = -1
LONG_AGO_MS = -(2**62)
NO_BROKER_EPOCH = -1
REFUSED_ISR_RETRY_MS = 1_000
REFUSED_ISR_RETRY_MAX_MS = 32_000
JOINING_WAIT_MAX_MS = 2_000


@dataclass(slots=True, kw_only=True)
class FollowerProgress:
    """What the leader knows of one follower, from its fetches of this leader epoch."""

    log_end_offset: Offset
    log_start_offset: Offset
    caught_up_at_ms: int
    """When the follower last held everything there was; Kafka's lastCaughtUpTimeMs."""

    broker_epoch: int
    """Of the registration under which it fetched last. What an earlier life of that broker had
    says nothing about what this one has (KIP-903)."""

    fetched_at_ms: int
    leader_end_offset_at_fetch: Offset

    def on_fetch(self, fetch_offset: Offset, *, leader_end_offset: Offset, now_ms: int) -> None:
        if fetch_offset >= leader_end_offset:
            self.caught_up_at_ms = now_ms
        elif fetch_offset >= self.leader_end_offset_at_fetch:
            # Under constant load a follower never asks for the very end. It kept up if it now
            # has what there was when it last asked.
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.log_end_offset = fetch_offset
        self.fetched_at_ms = now_ms
        self.leader_end_offset_at_fetch = leader_end_offset

    def on_taken_out(self, *, leader_end_offset: Offset) -> None:
        """It is not in sync any more. Perhaps its disk failed a moment after it was caught up: it
        has to reach what there is now before anybody waits for it."""
        self.caught_up_at_ms = LONG_AGO_MS
        self.leader_end_offset_at_fetch = leader_end_offset


@dataclass(slots=True, kw_only=True)
class PartitionLeader:
    """Decides what is committed. Owns no file, socket, task or clock."""

    broker: BrokerId
    leader_epoch: LeaderEpoch
    epoch_start_offset: Offset
    """Where the log ended when this broker was elected. All below may be committed already."""

    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    followers: dict[BrokerId, FollowerProgress]
    isr: frozenset[BrokerId]
    isr_version: int
    """Version of the state node that holds `isr`."""

    live_brokers: Mapping[BrokerId, int]
    """Brokers whose coordination session lives, and their epochs. Others may not join the isr."""

    min_insync_replicas: int
    replica_lag_time_max_ms: int
    propose_from_ms: int = field(default=LONG_AGO_MS, init=False)
    """Not to ask again at once for what was refused a moment ago."""

    refused_retry_ms: int = field(default=REFUSED_ISR_RETRY_MS, init=False)
    """For how long not, if it is refused: longer each time, unless a follower has asked since. One
    whose disk has failed is refused until that works again, in a thousand partitions at once."""

    isr_in_flight: frozenset[BrokerId] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        assert self.epoch_start_offset <= self.log_end_offset
        assert self.broker not in self.followers
        self._check_offsets(self.high_watermark)
        self._check_isr()

    @property
    def low_watermark(self) -> Offset:
        """The offset below which no live replica holds records; what DeleteRecords waits for."""
        starts = [
            progress.log_start_offset
            for replica, progress in self.followers.items()
            if replica in self.live_brokers
        ]
        return min([self.log_start_offset, *starts])

    def refuse_before_append(self, acks: int) -> None:
        """NOT_ENOUGH_REPLICAS for a write that could not be acknowledged anyway (R8)."""
        if acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            self._refuse_below_min_isr()

    def acknowledgement(self, end_offset: Offset) -> ErrorCode | None:
        """What an acks=all producer is told of a batch that ends at `end_offset`; None: wait.

        The set may have shrunk after the append. The records are stored and committed then, but
        on fewer replicas than was asked for, which is not success (R8).
        """
        if self.high_watermark < end_offset:
            return None
        if len(self.isr) < self._effective_min_isr():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def on_append(self, log_end_offset: Offset, *, now_ms: int) -> Effects:
        """Records were written to the local log, which now ends at `log_end_offset`."""
        before = self.log_end_offset
        assert log_end_offset > before
        self.log_end_offset = log_end_offset
        if not self.followers:
            self.high_watermark = log_end_offset  # I1 and I2 follow from the assertion above.
            return ADVANCED
        for progress in self.followers.values():
            # It had everything until now. Without news it does not ask by name for a partition
            # (KIP-227), so this may be long after it was last heard of.
            if progress.log_end_offset == before:
                progress.caught_up_at_ms = now_ms
        return self.advance_high_watermark(now_ms=now_ms)

    def on_follower_fetch(
        self,
        replica: BrokerId,
        *,
        broker_epoch: int,
        fetch_offset: Offset,
        log_start_offset: Offset,
        now_ms: int,
    ) -> Effects:
        """A follower asks for `fetch_offset`, so it has everything below it.

        Only a fetch of this very epoch, whose log does not diverge, may get here. The same
        offset in another epoch can name another record and would say nothing about this log.
        """
        assert replica in self.followers
        assert fetch_offset <= self.log_end_offset
        progress = self.followers[replica]
        progress.broker_epoch = broker_epoch
        progress.on_fetch(fetch_offset, leader_end_offset=self.log_end_offset, now_ms=now_ms)
        progress.log_start_offset = log_start_offset
        if replica in self.isr:
            return self.advance_high_watermark(now_ms=now_ms)
        self.refused_retry_ms = REFUSED_ISR_RETRY_MS
        self.propose_from_ms = min(self.propose_from_ms, now_ms + REFUSED_ISR_RETRY_MS)
        return self._propose_expansion(replica, now_ms) + self.advance_high_watermark(now_ms=now_ms)

    def on_tick(self, *, now_ms: int) -> Effects:
        """Propose a smaller isr if a member has not kept up for `replica.lag.time.max.ms` (R6).

        How many records it lacks does not matter: a burst of any size is no reason to leave.
        """
        self._forget_the_future(now_ms)
        effects = self.advance_high_watermark(now_ms=now_ms)
        if self.isr_in_flight is not None or now_ms < self.propose_from_ms:
            return effects
        lagging = {
            replica
            for replica, progress in self.followers.items()
            if replica in self.isr and not self._keeps_up(progress, now_ms)
        }
        if not lagging:
            return effects + self._propose_caught_up(now_ms)
        return effects + self._propose(self.isr - lagging)

    def _forget_the_future(self, now_ms: int) -> None:
        """The clock may have been set back, and then nobody would lag until it is there again."""
        for progress in self.followers.values():
            progress.caught_up_at_ms = min(progress.caught_up_at_ms, now_ms)
            progress.fetched_at_ms = min(progress.fetched_at_ms, now_ms)
        self.propose_from_ms = min(self.propose_from_ms, now_ms + REFUSED_ISR_RETRY_MAX_MS)

    def on_isr_changed(self, isr: frozenset[BrokerId], *, version: int, now_ms: int) -> Effects:
        """The state node holds `isr`, by our proposal or by the controller's hand.

        What is older than what we know arrived late and is not news.
        """
        if version <= self.isr_version:
            return NOTHING
        for replica, progress in self.followers.items():
            if replica in self.isr and replica not in isr:
                progress.on_taken_out(leader_end_offset=self.log_end_offset)
        self.isr = isr
        self.isr_version = version
        self.isr_in_flight = None
        self._check_isr()
        return self.advance_high_watermark(now_ms=now_ms) + self._propose_caught_up(now_ms)

    def on_isr_refused(self, *, now_ms: int) -> Effects:
        """The proposal was turned down for good: the state node does not and will not hold it."""
        assert self.isr_in_flight is not None
        self.isr_in_flight = None
        self.propose_from_ms = now_ms + self.refused_retry_ms
        self.refused_retry_ms = min(2 * self.refused_retry_ms, REFUSED_ISR_RETRY_MAX_MS)
        return self.advance_high_watermark(now_ms=now_ms)

    def on_replicas_changed(self, replicas: tuple[BrokerId, ...], *, now_ms: int) -> Effects:
        """Replicas were added or taken away, and this broker leads on (KIP-455).

        Whoever is taken away has left the isr before.
        """
        assert self.broker in replicas
        self.followers = {
            replica: self.followers.get(replica)
            or _unheard_of(self.log_end_offset, caught_up_at_ms=LONG_AGO_MS)
            for replica in replicas
            if replica != self.broker
        }
        self._check_isr()
        return self.advance_high_watermark(now_ms=now_ms)

    def on_live_brokers_changed(
        self, live_brokers: Mapping[BrokerId, int], *, now_ms: int
    ) -> Effects:
        """Sessions began or ended. Taking the dead out of the isr is the controller's part."""
        self.live_brokers = live_brokers
        return self.advance_high_watermark(now_ms=now_ms) + self._propose_caught_up(now_ms)

    def on_log_start_advanced(self, log_start_offset: Offset) -> None:
        """Retention or DeleteRecords removed what lies below `log_start_offset`."""
        assert log_start_offset >= self.log_start_offset
        self.log_start_offset = log_start_offset
        self._check_offsets(self.high_watermark)

    def on_min_insync_replicas_changed(self, min_insync_replicas: int) -> None:
        """The topic's setting was altered. Applies from the next decision on."""
        assert min_insync_replicas >= 1
        self.min_insync_replicas = min_insync_replicas

    def _refuse_below_min_isr(self) -> None:
        required = self._effective_min_isr()
        if len(self.isr) < required:
            raise RequestRefused(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas are in sync, min.insync.replicas asks for {required}",
            )

    def _effective_min_isr(self) -> int:
        # Asking for more than are assigned would make a topic unwritable by a setting alone.
        return min(self.min_insync_replicas, len(self.followers) + 1)

    def _propose_expansion(self, replica: BrokerId, now_ms: int) -> Effects:
        if replica in self.isr or self.isr_in_flight is not None:
            return NOTHING  # One proposal at a time, so that answers cannot be confused. I5
        if now_ms < self.propose_from_ms or not self.is_heard_of(replica):
            return NOTHING
        # A new leader's high watermark lags behind what its predecessor committed. All of that
        # lies below this epoch's start, so a follower that may be the next leader has to reach
        # the start too.
        required = max(self.high_watermark, self.epoch_start_offset)
        if self.followers[replica].log_end_offset < required:
            return NOTHING
        return self._propose(self.isr | {replica})

    def _propose_caught_up(self, now_ms: int) -> Effects:
        """Propose who has had everything since it last asked and could not join then.

        It does not ask again by name while there is no news for it (KIP-227).
        """
        if self.isr_in_flight is not None or now_ms < self.propose_from_ms:
            return NOTHING
        caught_up = {
            replica
            for replica, progress in self.followers.items()
            if progress.log_end_offset == self.log_end_offset
            and replica not in self.isr
            and self.is_heard_of(replica)
        }
        return self._propose(self.isr | caught_up) if caught_up else NOTHING

    def _propose(self, isr: frozenset[BrokerId]) -> Effects:
        self.isr_in_flight = isr
        epochs = {replica: self.followers[replica].broker_epoch for replica in isr - {self.broker}}
        return (ProposeIsr(isr, epochs, self.leader_epoch, self.isr_version),)

    def has_fetched(self, replica: BrokerId) -> bool:
        """Whether it is known how much `replica` has."""
        return self.followers[replica].log_end_offset != NO_OFFSET

    def is_heard_of(self, replica: BrokerId) -> bool:
        """Whether `replica` is alive, and what is known of it is about the life it lives now."""
        return self.live_brokers.get(replica) == self.followers[replica].broker_epoch

    def advance_high_watermark(self, *, now_ms: int) -> Effects:
        """Commit what every replica that counts holds by now."""
        # Whatever min.insync.replicas says: it refuses acks=all writes, it does not hide what an
        # acks=1 producer wrote to the last replica left.
        before = self.high_watermark
        for replica, progress in self.followers.items():
            if progress.log_end_offset <= before and replica in self.isr:
                return NOTHING  # As most often: somebody has not fetched it yet.
        replicated = self._replicated_offset(now_ms)
        if replicated <= before:
            return NOTHING
        self.high_watermark = replicated
        self._check_offsets(before)
        return ADVANCED

    def _replicated_offset(self, now_ms: int) -> Offset:
        """The offset below which every replica that counts holds every record."""
        replicated = self.log_end_offset
        for replica, progress in self.followers.items():
            if progress.log_end_offset < replicated and self._counts(replica, progress, now_ms):
                replicated = progress.log_end_offset
        return replicated

    def _counts(self, replica: BrokerId, progress: FollowerProgress, now_ms: int) -> bool:
        # The larger of the two sets is the safe one while a proposal is unanswered.
        if replica in self.isr:
            return True
        if self.isr_in_flight is not None and replica in self.isr_in_flight:
            return True
        # Wait for a follower that is about to join. Otherwise the high watermark runs ahead of
        # it for ever and a set of one never grows again. But not for one that has stopped asking:
        # it owes us nothing, and its disk may be full, again and again.
        return (
            self.is_heard_of(replica)
            and now_ms - progress.fetched_at_ms <= JOINING_WAIT_MAX_MS
            and self._keeps_up(progress, now_ms)
        )

    def _keeps_up(self, progress: FollowerProgress, now_ms: int) -> bool:
        if progress.log_end_offset == self.log_end_offset:
            return True
        return now_ms - progress.caught_up_at_ms <= self.replica_lag_time_max_ms

    def _check_offsets(self, high_watermark_before: Offset) -> None:
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset  # I1
        assert self.high_watermark >= high_watermark_before  # I2

    def _check_isr(self) -> None:
        assert self.broker in self.isr  # I3
        assert self.isr - {self.broker} <= self.followers.keys()  # I4


def elected(
    *,
    broker: BrokerId,
    replicas: tuple[BrokerId, ...],
    leader_epoch: LeaderEpoch,
    isr: frozenset[BrokerId],
    isr_version: int,
    live_brokers: Mapping[BrokerId, int],
    log_start_offset: Offset,
    log_end_offset: Offset,
    high_watermark: Offset,
    min_insync_replicas: int,
    replica_lag_time_max_ms: int,
    now_ms: int,
) -> PartitionLeader:
    """The leader that `broker` becomes, with its own log and the high watermark it last heard of.

    It knows nothing of the followers' logs. Members of the isr get the benefit of the doubt for
    one `replica.lag.time.max.ms`; the others have to show that they are caught up.
    """
    assert broker in replicas
    leader = PartitionLeader(
        broker=broker,
        leader_epoch=leader_epoch,
        epoch_start_offset=log_end_offset,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        # It was checkpointed now and then: retention may have passed it, a crash undercut it.
        high_watermark=max(log_start_offset, min(high_watermark, log_end_offset)),
        followers={
            replica: _unheard_of(
                log_end_offset, caught_up_at_ms=now_ms if replica in isr else LONG_AGO_MS
            )
            for replica in replicas
            if replica != broker
        },
        isr=isr,
        isr_version=isr_version,
        live_brokers=live_brokers,
        min_insync_replicas=min_insync_replicas,
        replica_lag_time_max_ms=replica_lag_time_max_ms,
    )
    # Alone in its isr, a leader commits by itself. Nobody can be waiting for it yet.
    leader.advance_high_watermark(now_ms=now_ms)
    return leader


def _unheard_of(leader_end_offset: Offset, *, caught_up_at_ms: int) -> FollowerProgress:
    return FollowerProgress(
        log_end_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET,
        caught_up_at_ms=caught_up_at_ms,
        broker_epoch=NO_BROKER_EPOCH,
        fetched_at_ms=LONG_AGO_MS,
        leader_end_offset_at_fetch=leader_end_offset,
    )
