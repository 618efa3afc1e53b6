"""The fetchers of a broker: two lanes to each leader that is followed, and who is in which (R2).

A fetch brings all that a leader has, up to a bound, over one connection. What comes next has to
wait until that has arrived and been appended. So a record for a quiet partition would wait behind
megabytes for busy ones, twice: once to be fetched and once to be known as fetched, and an acks=all
producer waits for both. Therefore a partition with much to fetch has a connection and a session
apart from those with little.

    leader 2 ──┬── quick lane: every partition at first; short answers, a parked fetch
               └── bulk lane: partitions of which an answer had `tidelog.replica.bulk.bytes`

A partition goes to the bulk lane once that is connected, and back when it breaks: whether a leader
is there at all is seen by the quick lane.

`num.replica.fetchers` is the number of such pairs for each leader. The fetchers of a pair end when
neither has anybody to fetch for.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.broker.follower_runner import FollowerRunner
from tidelog.broker.peers import Peer
from tidelog.broker.replica_fetcher import FollowShortcut, Lane, ReplicaFetcher
from tidelog.broker.replication_throttle import ReplicationThrottle
from tidelog.config.replication import ReplicationConfig


class _Place(NamedTuple):
    """Which fetcher: `number` is of `num.replica.fetchers`."""

    leader: BrokerId
    number: int
    lane: Lane

    @property
    def sibling(self) -> "_Place":
        other = Lane.BULK if self.lane is Lane.QUICK else Lane.QUICK
        return self._replace(lane=other)


class ReplicaFetchers:
    """Every method is called on the event loop."""

    def __init__(
        self,
        *,
        connect: Callable[[BrokerId], Peer | None],
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        config: ReplicationConfig,
        throttle: ReplicationThrottle,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        on_lost: Callable[[BrokerId], None],
        on_found: Callable[[BrokerId], None],
        shortcut: Callable[[ReplicaFetcher], FollowShortcut | None],
    ) -> None:
        """`connect` knows where a broker listens; None if it does not. `on_lost` is told when a
        leader stops answering, `on_found` when it answers again."""
        self._shortcut = shortcut
        self._on_lost = on_lost
        self._on_found = on_found
        self._connect = connect
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._config = config
        self._throttle = throttle
        self._loop = loop
        self._tasks = tasks
        self._fetchers: dict[_Place, ReplicaFetcher] = {}
        self._running: dict[ReplicaFetcher, asyncio.Task[None]] = {}
        self._places: dict[FollowerRunner, _Place] = {}
        self._unplaced: dict[FollowerRunner, None] = {}
        """Those whose leader nobody knows the address of."""

    def follow(self, follower: FollowerRunner) -> None:
        """Fetch for `follower` from the leader that its machine names."""
        leader = follower.machine.leader
        number = self._number_of(follower)
        place = self._places.get(follower)
        if place is not None and (place.leader, place.number) == (leader, number):
            self._fetchers[place].on_leader_epoch(follower)
            return
        self.unfollow(follower)
        if not self._put(follower, _Place(leader, number, Lane.QUICK)):
            self._unplaced[follower] = None

    def unfollow(self, follower: FollowerRunner) -> None:
        self._unplaced.pop(follower, None)
        place = self._places.pop(follower, None)
        if place is not None:
            self._fetchers[place].remove(follower)
            self._end_if_idle(place)

    def _change_lane(self, follower: FollowerRunner) -> None:
        place = self._places[follower]
        other = self._fetchers.get(place.sibling) or self._start(place.sibling)
        if other is None:
            return
        if place.lane is Lane.QUICK and not other.is_connected:
            other.expect()  # Until then it is fetched for, if slowly.
            return
        self._places[follower] = place.sibling
        other.add(follower)
        # It goes on without anybody: there may be a use for its connection again soon.
        self._fetchers[place].remove(follower)

    def on_address_changed(self, leader: BrokerId) -> None:
        """A broker is there, listens elsewhere, or is gone: who follows it begins anew."""
        followers = [one for one in self._unplaced if one.machine.leader == leader]
        followers += [one for one, place in self._places.items() if place.leader == leader]
        for follower in followers:
            self._places.pop(follower, None)
        for place in [place for place in self._fetchers if place.leader == leader]:
            self._end(place)
        for follower in followers:
            if not follower.is_stopped:
                self.follow(follower)

    def on_config(self, config: ReplicationConfig) -> None:
        """With another `num.replica.fetchers`, partitions are shared out among them anew."""
        self._config = config
        moved = [one for one, place in self._places.items() if place.number != self._number_of(one)]
        for follower in moved:
            if not follower.is_stopped:
                self.follow(follower)

    def stop(self) -> list["asyncio.Task[None]"]:
        """End all; whoever waits for the tasks knows when nothing is appended any more."""
        running = list(self._running.values())
        for fetcher, task in self._running.items():
            fetcher.stop()
            task.cancel()
        self._fetchers.clear()
        self._running.clear()
        self._places.clear()
        self._unplaced.clear()
        return running

    def _number_of(self, follower: FollowerRunner) -> int:
        return _share(follower.topic_partition) % self._config.num_replica_fetchers

    def _put(self, follower: FollowerRunner, place: _Place) -> bool:
        """Fetch for it there; False if nobody knows where the leader listens."""
        fetcher = self._fetchers.get(place) or self._start(place)
        if fetcher is None:
            return False
        self._places[follower] = place
        fetcher.add(follower)
        return True

    def _start(self, place: _Place) -> ReplicaFetcher | None:
        peer = self._connect(place.leader)
        if peer is None:
            return None
        fetcher = ReplicaFetcher(
            peer=peer,
            leader=place.leader,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            config=self._config,
            throttle=self._throttle,
            loop=self._loop,
            lane=place.lane,
            on_lost=self._on_lost,
            on_found=self._on_found,
            on_misplaced=self._change_lane,
            shortcut=self._shortcut,
        )
        self._fetchers[place] = fetcher
        self._running[fetcher] = self._tasks.create_task(fetcher.run())
        return fetcher

    def _end_if_idle(self, place: _Place) -> None:
        pair = [one for one in (place, place.sibling) if one in self._fetchers]
        if not any(self._fetchers[one].has_followers for one in pair):
            for one in pair:
                self._end(one)

    def _end(self, place: _Place) -> None:
        fetcher = self._fetchers.pop(place)
        fetcher.stop()
        self._running.pop(fetcher).cancel()


def _share(topic_partition: TopicPartition) -> int:
    """Any number, but always the same for one partition."""
    return sum(topic_partition.topic.encode()) * 31 + topic_partition.partition
