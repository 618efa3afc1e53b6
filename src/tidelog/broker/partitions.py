"""Every partition this broker serves, found by name or by topic id.

Lookups are dictionary lookups, whatever the number of partitions (T8). Refusals carry the code that
a Kafka client acts upon: it looks the leader up again, or learns that the topic is gone.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicPartition
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.controller.changes import Change, TopicCreated, TopicDeleted
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage


class Partitions:
    """The partitions of this broker, and the cluster image that says which those should be."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        # Ids as they stand in requests: making a UUID would cost as much as half a request.
        self._names: dict[bytes, str] = {}
        self._runners: dict[tuple[str, int], PartitionRunner] = {}
        self._offline: set[tuple[str, int]] = set()
        self._attach: dict[str, Callable[[PartitionRunner], None]] = {}

    def __len__(self) -> int:
        return len(self._runners)

    def __iter__(self) -> Iterator[PartitionRunner]:
        return iter(tuple(self._runners.values()))

    def add(self, runner: PartitionRunner) -> None:
        assert runner.topic_partition not in self._runners
        self._runners[runner.topic_partition] = runner
        self._offline.discard(runner.topic_partition)
        attach = self._attach.get(runner.topic_partition.topic)
        if attach is not None:
            attach(runner)

    def attach_to(self, topic: str, attach: Callable[[PartitionRunner], None]) -> None:
        """Have `attach` see every partition of `topic` that is added, before it has a role."""
        self._attach[topic] = attach

    def mark_offline(self, topic_partition: TopicPartition) -> None:
        """This broker should have the partition, but its log directory cannot be used."""
        self._offline.add(topic_partition)

    @property
    def marked_offline_count(self) -> int:
        """Of those that this broker should have and could not open; they have no runner."""
        return len(self._offline)

    def is_marked_offline(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._offline

    def remove(self, topic_partition: TopicPartition) -> PartitionRunner | None:
        """Forget one partition, which another broker holds from now on."""
        self._offline.discard(topic_partition)
        return self._runners.pop(topic_partition, None)

    def remove_topics(self, topics: Collection[str]) -> list[PartitionRunner]:
        """Forget every partition of `topics`; clients are told that there are no such topics."""
        self._offline = {known for known in self._offline if known[0] not in topics}
        keys = [key for key in self._runners if key[0] in topics]
        return [self._runners.pop(key) for key in keys]

    def find(self, topic: str, partition: int) -> PartitionRunner | None:
        """The runner, whatever its state; None if this broker holds no such partition."""
        return self._runners.get((topic, partition))

    def drop_roles(self) -> None:
        """The session is lost: somebody else may lead by now, so refuse everything (C6).

        Also what waits: nothing is acknowledged any more, and readers are told to look elsewhere.
        """
        for runner in self:
            runner.resign()

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, given as its sixteen bytes."""
        return self._names.get(topic_id)

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """The cluster is now `image`, by way of `changes`."""
        self.image = image
        for change in changes:
            match change:
                case TopicCreated(topic, _):
                    self._names[topic.topic_id.bytes] = topic.name
                case TopicDeleted(_, topic_id):
                    self._names.pop(topic_id.bytes, None)
                case _:
                    pass

    def led(
        self, topic: str, partition: int, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> PartitionRunner:
        """The runner of a partition that this broker leads, or RequestRefused.

        `current_leader_epoch` is what the client believes; NO_LEADER_EPOCH makes no claim.
        """
        runner = self._online(topic, partition, current_leader_epoch)
        if runner.leader is None:
            raise RequestRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return runner

    def readable(
        self, topic: str, partition: int, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> PartitionRunner:
        """The runner of a partition that consumers may read here, or RequestRefused.

        This broker leads it, or follows and says what it knows to be committed (KIP-392).
        """
        runner = self._online(topic, partition, current_leader_epoch)
        if runner.leader is None and not runner.is_readable_as_follower:
            raise RequestRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return runner

    def _online(self, topic: str, partition: int, current_leader_epoch: int) -> PartitionRunner:
        runner = self._runners.get((topic, partition))
        if runner is None:
            raise RequestRefused(self.absence(topic, partition))
        if runner.is_offline:
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR)
        if current_leader_epoch != NO_LEADER_EPOCH:
            require_epoch(runner.leader_epoch, current_leader_epoch)
        return runner

    def absence(self, topic: str, partition: int) -> ErrorCode:
        """Why there is no such partition here."""
        if self.image.partition(topic, partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic, partition) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


def require_epoch(ours: LeaderEpoch, theirs: int) -> None:
    """Refuse a client that knows another leader epoch than we do (KIP-320)."""
    if theirs < ours:
        raise RequestRefused(ErrorCode.FENCED_LEADER_EPOCH)
    if theirs > ours:
        raise RequestRefused(ErrorCode.UNKNOWN_LEADER_EPOCH)
