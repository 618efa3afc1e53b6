"""What this broker is for one partition: its leader, a follower, or neither.

    lead    ──▶ leading     appends, and commits what its followers have
    follow  ──▶ following   copies what the leader has
    resign  ──▶ neither     is not told who leads

A role begins when nothing is under way any more that was begun in the role before: a thread that
cuts a follower's log must be done before anybody else decides about that log.
"""

from collections.abc import Callable

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.broker.flushing import Flusher
from tidelog.broker.follower_runner import FollowerRunner
from tidelog.broker.partition_appends import PartitionAppends
from tidelog.broker.partition_ports import LogDirectory
from tidelog.broker.served_partition import ServedPartition, announce
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.follower import PartitionFollower
from tidelog.core.partition.leader import PartitionLeader
from tidelog.core.transactions.producers import ProducerStates
from tidelog.storage.log import Log


class PartitionRoles(PartitionAppends):
    """Gives a partition its role, one after the other."""

    __slots__ = ()

    def lead(self, elect: Callable[[ServedPartition], PartitionLeader]) -> None:
        """Lead, in a new epoch. `elect` makes the machine, from the log as it is by then.

        Whoever waited for this broker in an earlier epoch goes on, if it has led all the time.
        """
        self._take_role(lambda: self._begin_to_lead(elect(self)))

    def follow(
        self,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        fetch_for: Callable[[FollowerRunner], None],
    ) -> None:
        """Copy from `leader`; `fetch_for` is called with the follower once it may begin."""
        follower = self.follower
        if follower is not None and not follower.is_stopped:
            follower.machine.on_leader_changed(leader, leader_epoch)
            self._announce(0)
            fetch_for(follower)
            return

        def begin() -> None:
            self._begin_to_follow(leader, leader_epoch)
            assert self.follower is not None
            fetch_for(self.follower)

        self._stop_leading()
        self._take_role(begin)

    def resign(self) -> None:
        """Do neither: this broker is not told any more who leads."""
        self._stop_leading()
        self._take_role(self._do_nothing)

    def _take_role(self, begin: Callable[[], None]) -> None:
        """Begin when nothing is under way that was begun in the role before."""
        follower = self.follower
        if follower is None:
            begin()
            return
        follower.stop()
        self._announce(0)
        if not follower.is_busy:
            begin()
            return
        follower.on_idle = self._begin_next_role
        self._next_role = begin

    def _begin_next_role(self) -> None:
        begin, self._next_role = self._next_role, None
        if begin is not None:
            begin()

    def _begin_to_lead(self, leader: PartitionLeader) -> None:
        self._keep_high_watermark()
        self.leader, self.follower = leader, None
        if leader.leader_epoch > self.epochs.latest_epoch:
            # Before anything is written in it: a follower that has records of an epoch between
            # the last two has to learn that those are not here (KIP-101). On disk it is worth
            # nothing before the first record: who restarts leads in another epoch, if at all.
            self.epochs.assign(leader.leader_epoch, start_offset=self.log.log_end_offset)
            self.has_unwritten_epoch = True
        self._waiters.wake(leader.high_watermark)
        self._wake_deletions()
        self._announce(0)
        self._tell_role()

    def _begin_to_follow(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self._keep_high_watermark()
        log = self.log
        # An epoch in which this broker led and wrote nothing is not part of its log.
        self.epochs.truncate_from_end(log.log_end_offset)
        self.has_unwritten_epoch = False
        machine = PartitionFollower(
            leader=leader,
            leader_epoch=leader_epoch,
            # It was checkpointed now and then: retention may have passed it, a crash undercut it.
            high_watermark=max(log.log_start_offset, min(self._high_watermark, log.log_end_offset)),
        )
        self.follower = FollowerRunner(self, machine, clock=self._clock)

    def _do_nothing(self) -> None:
        self._keep_high_watermark()
        self.follower = None

    def _stop_leading(self) -> None:
        if self.leader is None:
            return
        self._keep_high_watermark()
        self.leader = None
        self._flusher.give_up()
        self._waiters.wake_all()
        self._wake_deletions()
        self._announce(0)
        self._queue.work_off()
        self._tell_role()

    def _tell_role(self) -> None:
        if self.role_watcher is not None:
            self.role_watcher()

    def _keep_high_watermark(self) -> None:
        self._high_watermark = self.high_watermark
        self.producers.on_committed(self._high_watermark)

    def on_in_sync_changed(self, is_in_sync: bool) -> None:
        """Whether this replica is in the isr, as its newest role says."""
        if self._is_in_sync is not is_in_sync:
            self._is_in_sync = is_in_sync
            self._announce(0)

    def on_committed(self) -> None:
        """As a follower: the leader has said that more is committed."""
        self.producers.on_committed(self.high_watermark)
        if self._watchers:
            announce(self._watchers, 0)

    def on_cut(self) -> None:
        """As a follower: the log ends, and perhaps begins, where it did not."""
        if self.move is not None:
            self.move.on_cut()
        self._announce(0)

    def move_to(self, log: Log, log_directory: LogDirectory) -> None:
        """Go on with `log`, which holds the same, in another directory. Nothing is appended or cut
        meanwhile; what else may have been done to the log before, since it was copied, is done to
        this one."""
        assert self._queue.is_busy
        before, flusher = self.log, self._flusher
        assert log.log_end_offset == before.log_end_offset
        log.advance_log_start(before.log_start_offset)
        log.reconfigure(self.config)
        noted = before.noted_leader_epochs
        log.note_leader_epochs(noted, are_written=noted == log.noted_leader_epochs)
        self.log, self.log_directory = log, log_directory
        self._flusher = Flusher(log, log_directory.executor, log_directory.on_failure)
        if self.deduplicator is not None:
            self.deduplicator.on_moved(before)
        flusher.on_moved(log.log_end_offset)

    def end_pause(self) -> None:
        """Go on with what came while the log was being put in another place."""
        self._queue.resume()

    def take_offline(self) -> None:
        """The disk is gone: answer everything with KAFKA_STORAGE_ERROR from now on."""
        if self.is_offline:
            return
        self.is_offline = True
        self._waiters.wake_all()
        self._wake_deletions()
        self._flusher.give_up()
        self._announce(0)
        self._queue.work_off()
        self._tell_role()

    def bring_online(
        self,
        *,
        log: Log,
        high_watermark: Offset,
        epochs: EpochHistory,
        producers: ProducerStates,
    ) -> None:
        """The disk is back and the log was recovered. It has to be told its role again."""
        assert self.is_offline
        assert not self._queue.is_busy  # Logs are opened behind everything the old one began.
        self._stop_leading()
        self._next_role = None
        if self.follower is not None:
            self.follower.stop()
        self.follower = None
        self.log, self.epochs, self.producers = log, epochs, producers
        self._high_watermark = high_watermark
        self._flusher = Flusher(log, self.log_directory.executor, self.log_directory.on_failure)
        self.is_offline = False
        self._announce(0)
