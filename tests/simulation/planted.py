"""Bugs to be found: each breaks one rule, as somebody could who did not know the reason for it.

A bug is planted into the production code for the length of a `with` and found by a simulation. One
that no checker notices would say that the checker cannot fail.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId, Offset
from tidelog.broker import fetch_reader, replica_logs, replicas
from tidelog.broker.broker import Broker
from tidelog.broker.cluster_tree import ClusterTree, Fence
from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.fetch_reader import FetchReader
from tidelog.broker.follower_runner import FollowerRunner, Position
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.coordination.port import Set
from tidelog.core.controller import election, isr
from tidelog.core.controller.election import LeaderChoice, NextState
from tidelog.core.controller.image import LastStop
from tidelog.core.controller.isr import IsrOutcome, IsrProposal
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.leader import FollowerProgress, PartitionLeader, elected
from tidelog.core.transactions.producers import ProducerStates


@contextmanager
def truncate_to_high_watermark() -> Iterator[None]:
    """KIP-101's first accident: a follower cuts its log to its own high watermark."""
    begin = PartitionRunner._begin_to_follow

    def begin_and_cut(self: PartitionRunner, leader: Any, leader_epoch: Any) -> None:
        begin(self, leader, leader_epoch)
        assert self.follower is not None
        offset = self.high_watermark
        if offset < self.log.log_end_offset:
            self.follower._cut(
                offset, partial(self.log.truncate_to, offset), self.follower._be_ready
            )

    with patch.object(PartitionRunner, "_begin_to_follow", begin_and_cut):
        yield


@contextmanager
def acknowledge_before_the_followers_have_it() -> Iterator[None]:
    """acks=all is answered when the leader has written."""
    with patch.object(PartitionLeader, "acknowledgement", lambda *_: ErrorCode.NONE):
        yield


@contextmanager
def expand_the_isr_too_early() -> Iterator[None]:
    """Whoever fetches joins, however much it lacks."""

    def propose(self: PartitionLeader, replica: BrokerId, now_ms: int) -> Any:
        if replica in self.isr or self.isr_in_flight is not None or not self.is_heard_of(replica):
            return ()
        return self._propose(self.isr | {replica})

    with patch.object(PartitionLeader, "_propose_expansion", propose):
        yield


@contextmanager
def high_watermark_from_the_smaller_set() -> Iterator[None]:
    """While a change of the isr is in flight, the proposed set counts as if it were granted."""

    def counts(
        self: PartitionLeader, replica: BrokerId, progress: FollowerProgress, now_ms: int
    ) -> bool:
        return replica in (self.isr if self.isr_in_flight is None else self.isr_in_flight)

    with patch.object(PartitionLeader, "_counts", counts):
        yield


@contextmanager
def forget_to_fence_an_old_leader() -> Iterator[None]:
    """The controller takes what somebody proposes who led once; who leads now stays a member."""
    alter = isr._altered

    def altered(image: Any, before: Any, proposal: IsrProposal, *args: Any) -> IsrOutcome:
        _, state = isr._find(image, before, proposal)
        if state.leader not in {*proposal.members, NO_BROKER}:
            everybody = (*proposal.isr, (state.leader, isr.ANY_BROKER_EPOCH))
            proposal = dataclasses.replace(proposal, isr=everybody)
        return alter(image, before, proposal, *args)

    with (
        patch.object(isr, "_altered", altered),
        patch.object(isr, "_require_current", lambda *_: None),
        patch.object(isr, "_is_taken_already", lambda *_: False),
        patch.object(election.Candidates, "require_registered", lambda *_: None),
    ):
        yield


@contextmanager
def forget_to_fence_an_old_controller() -> Iterator[None]:
    """A controller that has been succeeded goes on writing, over whatever is there."""
    operations = ClusterTree._operations

    def unchecked(self: ClusterTree, *args: Any) -> Iterator[Any]:
        for operation in operations(self, *args):
            if isinstance(operation, Set):
                yield Set(operation.path, operation.value)
            else:
                yield operation

    async def admit(self: ControlRequests, header: Any) -> None:
        return None

    with (
        patch.object(Fence, "checks", property(lambda _self: [])),
        patch.object(ClusterTree, "_operations", unchecked),
        patch.object(ControlRequests, "_admit", admit),
    ):
        yield


@contextmanager
def serve_consumers_above_the_high_watermark() -> Iterator[None]:
    """Consumers read what is not committed."""
    offsets = fetch_reader._offsets
    look = FetchReader.look

    def all_there_is(runner: PartitionRunner) -> Any:
        end_offset = runner.leading.log_end_offset
        return offsets(runner)._replace(high_watermark=end_offset, last_stable_offset=end_offset)

    def look_further(self: FetchReader, interest: Any, request: Any, read: Any) -> Any:
        if request.replica_id >= 0:
            return look(self, interest, request, read)
        with patch.object(fetch_reader, "_offsets", all_there_is):
            return look(self, interest, request, read)

    with patch.object(FetchReader, "look", look_further):
        yield


@contextmanager
def serve_consumers_of_a_follower_above_its_high_watermark() -> Iterator[None]:
    """A follower gives consumers all that it has copied."""
    offsets = fetch_reader._offsets

    def all_there_is(runner: PartitionRunner) -> Any:
        if runner.leader is not None:
            return offsets(runner)
        end_offset = runner.log.log_end_offset
        return offsets(runner)._replace(high_watermark=end_offset, last_stable_offset=end_offset)

    with patch.object(fetch_reader, "_offsets", all_there_is):
        yield


@contextmanager
def elect_outside_the_isr() -> Iterator[None]:
    """The first replica that is alive leads."""

    def choose(replicas: Any, _isr: Any, live: Any, *, allow_unclean: bool) -> Any:
        found = next((each for each in replicas if each in live), None)
        return None if found is None else LeaderChoice(found, unclean=False)

    led = election._led

    def led_alone(state: Any, leader: Any, isr: Any, **kwargs: Any) -> NextState:
        return led(state, leader, isr if leader in isr or leader < 0 else (leader,), **kwargs)

    with (
        patch.object(election, "choose_leader", choose),
        patch.object(election, "_led", led_alone),
    ):
        yield


@contextmanager
def drop_the_epoch_checkpoint() -> Iterator[None]:
    """After a restart nobody knows which leader wrote what."""
    open_replica = replica_logs.open_replica

    def without_epochs(*args: Any, **kwargs: Any) -> Any:
        opened = open_replica(*args, **kwargs)
        object.__setattr__(opened, "epochs", EpochHistory(()))
        return opened

    with patch.object(replica_logs, "open_replica", without_epochs):
        yield


@contextmanager
def ignore_session_loss() -> Iterator[None]:
    """A broker leads on without a session."""

    def lose(self: ControllerRunner) -> None:
        self._session = None
        self._stop_channels()
        self._refuse_waiting()

    with patch.object(ControllerRunner, "_on_session_lost", lose):
        yield


@contextmanager
def keep_a_broker_in_the_isr_after_a_power_cut() -> Iterator[None]:
    """R13 forgotten: every stop counts as clean."""

    async def clean(self: Broker, log_dirs: Any) -> LastStop:
        return LastStop.CLEAN

    with patch.object(Broker, "_last_stop", clean):
        yield


@contextmanager
def take_everything_for_committed_at_election() -> Iterator[None]:
    """A new leader shows consumers all it has, also what the isr does not hold."""

    def all_committed(**kwargs: Any) -> PartitionLeader:
        return elected(**{**kwargs, "high_watermark": kwargs["log_end_offset"]})

    with patch.object(replicas, "elected", all_committed):
        yield


@contextmanager
def lead_on_in_the_old_epoch() -> Iterator[None]:
    """A change of leaders does not raise the epoch."""
    after = NextState.after

    def in_the_old_epoch(self: NextState, before: Any) -> Any:
        state = after(self, before)
        return state and dataclasses.replace(state, leader_epoch=before.leader_epoch)

    with patch.object(NextState, "after", in_the_old_epoch):
        yield


@contextmanager
def overlook_diverged_logs() -> Iterator[None]:
    """The leader sends records without looking whether the logs agree before them."""
    with patch.object(fetch_reader, "_diverging_epoch", lambda *_: None):
        yield


@contextmanager
def a_follower_claims_what_it_has_not_written() -> Iterator[None]:
    """The next fetch asks for what comes after records that are still on their way to the log."""
    position = FollowerRunner.__dict__["position"]

    def ahead(self: FollowerRunner) -> Position:
        here: Position = position.fget(self)
        if here.fetch_offset and self.machine.high_watermark == here.fetch_offset:
            return here._replace(fetch_offset=Offset(here.fetch_offset + 1))
        return here

    with patch.object(FollowerRunner, "position", property(ahead)):
        yield


@contextmanager
def followers_forget_producers() -> Iterator[None]:
    """A new leader does not know what idempotent producers have sent (D2)."""

    def forget(self: ProducerStates, *_: Any, **__: Any) -> None:
        return None

    append = FollowerRunner._append

    def append_and_forget(self: FollowerRunner, *args: Any) -> None:
        with patch.object(ProducerStates, "on_replayed", forget):
            append(self, *args)

    with patch.object(FollowerRunner, "_append", append_and_forget):
        yield


PLANTED: dict[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        truncate_to_high_watermark,
        acknowledge_before_the_followers_have_it,
        expand_the_isr_too_early,
        high_watermark_from_the_smaller_set,
        forget_to_fence_an_old_leader,
        forget_to_fence_an_old_controller,
        serve_consumers_above_the_high_watermark,
        serve_consumers_of_a_follower_above_its_high_watermark,
        elect_outside_the_isr,
        drop_the_epoch_checkpoint,
        ignore_session_loss,
        keep_a_broker_in_the_isr_after_a_power_cut,
        take_everything_for_committed_at_election,
        lead_on_in_the_old_epoch,
        overlook_diverged_logs,
        a_follower_claims_what_it_has_not_written,
        followers_forget_producers,
    )
}
