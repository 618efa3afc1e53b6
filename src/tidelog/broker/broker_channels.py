"""What the controller has to tell each broker, and how it gets there (C4).

An event changes many partitions; each broker hears of all of them in one request of a kind. What a
broker has not been told yet is kept as a list of names, not of messages: the request is made from
the image when it can be sent, so a broker that is slow is told the newest state, once, however much
has happened meanwhile.

    event ──▶ note what to tell ──▶ ┌ channel of broker 1 ┐ ──▶ UpdateMetadata, LeaderAndIsr,
                                    │ channel of broker 2 │     StopReplica, in this order and in
                                    └ ...                 ┘     one go; again until answered

A channel lives as long as a registration of its broker. It begins by telling everything. The
controller's own broker has a channel as well; what goes through that is handed over, not sent.

Invariants:

    I1  What is told was stored first: `on_published` is called with images that are in the tree.
    I2  Per broker, one round of requests is under way at a time, and later rounds say later things.
    I3  Whatever was not answered is told again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from tidelog.broker import cluster_messages as messages
from tidelog.broker.peers import PeerUnreachable
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ClientConfigChanged,
    ControllerChanged,
    GroupConfigChanged,
    PartitionChanged,
    PartitionsAdded,
    ReplicasFailed,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.image import EMPTY_IMAGE, BrokerImage, ClusterImage
from tidelog.wire.cluster_states import ControlHeader, FailedPartition
from tidelog.wire.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.wire.stop_replica import StoppedReplica, StopReplicaRequest, StopReplicaResponse
from tidelog.wire.update_metadata import (
    EntityKind,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

logger = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.1
RETRY_BACKOFF_MAX_S = 2.0


class ControlledBroker(Protocol):
    """A broker as its controller sees it: over a connection, or in the same process.

    Each call may be made while the one before it is unanswered; they take effect in order. Raises
    PeerUnreachable or WireError.
    """

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse: ...
    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...
    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Told:
    """Which replicas of a broker do as they were told, and which cannot."""

    broker_id: BrokerId
    working: frozenset[TopicPartition]
    failed: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who speaks: the controller of one epoch."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    token: bytes


@dataclass(slots=True)
class _Untold:
    """What one broker has not been told yet."""

    is_full: bool = False
    is_news: bool = False
    """Something is new that has no list here: brokers, the controller."""
    partitions: dict[str, set[int]] = field(default_factory=dict)
    roles: dict[str, set[int]] = field(default_factory=dict)
    entities: dict[tuple[EntityKind, str], None] = field(default_factory=dict)
    deleted_topics: dict[TopicId, None] = field(default_factory=dict)
    stopped: dict[tuple[TopicId, int], StoppedReplica] = field(default_factory=dict)
    """By the id of the topic: one of the same name may have come and gone since."""
    failed: dict[BrokerId, None] = field(default_factory=dict)
    """Brokers whose disks failed or work again."""

    def __bool__(self) -> bool:
        return bool(
            self.is_full
            or self.is_news
            or self.partitions
            or self.roles
            or self.entities
            or self.deleted_topics
            or self.stopped
            or self.failed
        )

    def add_back(self, older: "_Untold") -> None:
        """What could not be told is to be told with what has come since."""
        self.is_full |= older.is_full
        self.is_news |= older.is_news
        for name, numbers in older.partitions.items():
            self.partitions.setdefault(name, set()).update(numbers)
        for name, numbers in older.roles.items():
            self.roles.setdefault(name, set()).update(numbers)
        self.entities = {**older.entities, **self.entities}
        self.deleted_topics = {**older.deleted_topics, **self.deleted_topics}
        self.stopped = {**older.stopped, **self.stopped}
        self.failed = {**older.failed, **self.failed}


class BrokerChannels:
    """The channels of one controller, for as long as it is controller."""

    def __init__(
        self,
        *,
        connect: Callable[[BrokerImage], ControlledBroker],
        on_told: Callable[[Told], None],
        on_succeeded: Callable[[ErrorCode], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """`on_told` hears how each LeaderAndIsr went; `on_succeeded` that there is another
        controller."""
        self._connect = connect
        self._on_told = on_told
        self._on_succeeded = on_succeeded
        self._tasks = tasks
        self._channels: dict[BrokerId, _Channel] = {}
        self._speaker: Speaker | None = None
        self.image = EMPTY_IMAGE

    def start(self, speaker: Speaker, image: ClusterImage) -> None:
        """Tell everybody everything, in the name of a new controller."""
        self.stop()
        self._speaker = speaker
        self.image = image
        for broker in sorted(image.brokers.values(), key=self._is_own):
            self._open(broker)

    def stop(self) -> None:
        """Somebody else is controller, or nobody: say nothing more."""
        self._speaker = None
        for channel in self._channels.values():
            channel.stop()
        self._channels.clear()

    def on_published(
        self, before: ClusterImage, after: ClusterImage, changes: Sequence[Change]
    ) -> None:
        """Tell every broker what has become of the cluster."""
        if self._speaker is None:
            return
        self.image = after
        for change in changes:
            self._note(before, after, change)
        for channel in self._others_first():
            channel.wake()

    def repeat_roles(self, broker_id: BrokerId) -> None:
        """Ask a broker again how its replicas are."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.note_all_roles(self.image, channel.untold)
            channel.wake()

    async def delivered(self, within_s: float) -> None:
        """Return when every broker that answers has been told everything, and has done what it was
        told, or time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for channel in list(self._channels.values()):
                    await channel.idle.wait()

    async def known(self, within_s: float) -> None:
        """Return when every broker that answers knows everything, or time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for channel in list(self._channels.values()):
                    await channel.informed.wait()

    def _is_own(self, broker: BrokerImage) -> bool:
        return self._speaker is not None and broker.broker_id == self._speaker.controller_id

    def _others_first(self) -> list["_Channel"]:
        """What is handed over is done at once; what is sent meanwhile can be done meanwhile."""
        return sorted(self._channels.values(), key=lambda one: self._is_own(one.broker))

    def _open(self, broker: BrokerImage) -> None:
        assert self._speaker is not None
        channel = _Channel(self, self._speaker, broker, self._connect(broker))
        self._channels[broker.broker_id] = channel
        channel.task = self._tasks.create_task(channel.run())

    def _note(self, before: ClusterImage, after: ClusterImage, change: Change) -> None:
        match change:
            case BrokerRegistered(broker):
                self._close(broker.broker_id)
                self._open(broker)
                self._note_everybody()
            case BrokerGone(broker_id):
                self._close(broker_id)
                self._note_everybody()
            case ControllerChanged():
                self._note_everybody()
            case TopicCreated(topic, configs):
                self._note_partitions(after, topic.name, range(len(topic.partitions)))
                if configs:
                    self._note_entity(EntityKind.TOPIC, topic.name)
            case PartitionsAdded(name, first, partitions):
                self._note_partitions(after, name, range(first, first + len(partitions)))
            case PartitionChanged(name, partition, state):
                self._note_partitions(after, name, (partition,))
                gone = before.topics[name].partitions[partition]
                self._note_removed(after, change, set(gone.replicas) - set(state.replicas))
            case TopicDeleted(name, topic_id):
                self._note_deleted(before, name, topic_id)
            case _:
                self._note_more(change)

    def _note_more(self, change: Change) -> None:
        match change:
            case TopicConfigChanged(name, _):
                self._note_entity(EntityKind.TOPIC, name)
            case BrokerConfigChanged(broker_id, _):
                self._note_entity(EntityKind.BROKER, messages.entity_name(broker_id))
            case ClientConfigChanged(name, _):
                self._note_entity(EntityKind.CLIENT, name)
            case GroupConfigChanged(name, _):
                self._note_entity(EntityKind.GROUP, name)
            case ReplicasFailed(broker_id, _):
                for channel in self._channels.values():
                    channel.untold.failed[broker_id] = None
            case _:
                pass

    def _close(self, broker_id: BrokerId) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.stop()

    def _note_everybody(self) -> None:
        for channel in self._channels.values():
            channel.untold.is_news = True

    def _note_entity(self, kind: EntityKind, name: str) -> None:
        for channel in self._channels.values():
            channel.untold.entities[kind, name] = None

    def _note_partitions(self, after: ClusterImage, name: str, numbers: Sequence[int]) -> None:
        topic = after.topics.get(name)
        if topic is None:
            return  # Deleted by a later change of the same event.
        for channel in self._channels.values():
            channel.untold.partitions.setdefault(name, set()).update(numbers)
        for number in numbers:
            for replica in topic.partitions[number].replicas:
                channel_of = self._channels.get(replica)
                if channel_of is not None:
                    channel_of.untold.roles.setdefault(name, set()).add(number)

    def _note_removed(
        self, after: ClusterImage, change: PartitionChanged, removed: set[BrokerId]
    ) -> None:
        topic = after.topics.get(change.topic)
        for broker_id in removed:
            channel = self._channels.get(broker_id)
            if channel is not None and topic is not None:
                channel.note_stopped(
                    change.topic, topic.topic_id, change.partition, change.state.leader_epoch
                )

    def _note_deleted(self, before: ClusterImage, name: str, topic_id: TopicId) -> None:
        topic = before.topics.get(name)
        for channel in self._channels.values():
            channel.untold.deleted_topics[topic_id] = None
            channel.untold.partitions.pop(name, None)
            channel.untold.roles.pop(name, None)
        if topic is None:
            return
        for number, state in enumerate(topic.partitions):
            for replica in state.replicas:
                channel_of = self._channels.get(replica)
                if channel_of is not None:
                    channel_of.note_stopped(name, topic_id, number, state.leader_epoch)

    # -- called by channels ----------------------------------------------------------------------

    def told(self, told: Told) -> None:
        self._on_told(told)

    def succeeded(self, code: ErrorCode) -> None:
        self._on_succeeded(code)


class _Channel:
    """One registration of one broker."""

    def __init__(
        self,
        channels: BrokerChannels,
        speaker: Speaker,
        broker: BrokerImage,
        controlled: ControlledBroker,
    ) -> None:
        self._channels = channels
        self.broker = broker
        self._broker_id = broker.broker_id
        self._controlled = controlled
        self._header = ControlHeader(
            speaker.controller_id, speaker.controller_epoch, broker.broker_epoch, speaker.token
        )
        self.untold = _Untold(is_full=True)
        self.task: asyncio.Task[None] | None = None
        self.idle = asyncio.Event()
        self.informed = asyncio.Event()
        self._wake = asyncio.Event()
        self._wake.set()
        self._backoff_s = RETRY_BACKOFF_S
        self._is_stopped = False
        """A cancellation may be lost: if a request fails in the same turn, `gather` raises that."""

    def wake(self) -> None:
        if self.untold:
            self.idle.clear()
            self.informed.clear()
            self._wake.set()

    def stop(self) -> None:
        self._is_stopped = True
        if self.task is not None:
            self.task.cancel()

    def note_all_roles(self, image: ClusterImage, untold: _Untold) -> None:
        for name, topic in image.topics.items():
            numbers = {
                number
                for number, state in enumerate(topic.partitions)
                if self._broker_id in state.replicas
            }
            if numbers:
                untold.roles.setdefault(name, set()).update(numbers)

    def note_stopped(
        self, topic: str, topic_id: TopicId, partition: int, leader_epoch: LeaderEpoch
    ) -> None:
        self.untold.stopped[topic_id, partition] = StoppedReplica(
            topic, topic_id.bytes, partition, leader_epoch, delete=True
        )

    async def run(self) -> None:
        """Tell what is to be told until stopped."""
        try:
            while not self._is_stopped:
                await self._wake.wait()  # Ended by news.
                self._wake.clear()
                if self.untold:
                    await self._tell()
                if not self.untold:
                    self._be_idle()
        finally:
            self._be_idle()  # Nobody has to wait for who is gone.
            self._controlled.close()

    async def _tell(self) -> None:
        untold, self.untold = self.untold, _Untold()
        image = self._channels.image
        if untold.is_full:
            self.note_all_roles(image, untold)
        try:
            code = await self._tell_all(image, untold)
        except (PeerUnreachable, WireError) as error:
            logger.info(
                "broker does not hear its controller",
                extra={"broker": self._broker_id, "reason": error},
            )
            code = ErrorCode.NETWORK_EXCEPTION
        if code is ErrorCode.NONE or self._is_stopped:
            self._backoff_s = RETRY_BACKOFF_S
            return
        self.untold.add_back(untold)  # I3
        if code is ErrorCode.INVALID_REQUEST:
            self.untold.is_full = True  # It has missed something.
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._channels.succeeded(code)
        self._be_idle()
        await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(2 * self._backoff_s, RETRY_BACKOFF_MAX_S)
        self._wake.set()

    def _be_idle(self) -> None:
        self.idle.set()
        self.informed.set()

    async def _inform(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        response = await self._controlled.update_metadata(request)
        if not self.untold:
            self.informed.set()
        return response

    async def _tell_all(self, image: ClusterImage, untold: _Untold) -> ErrorCode:
        """All of it in one go; the answers come back in the same order."""
        controlled = self._controlled
        roles = self._roles(image, untold)
        stops = StopReplicaRequest(self._header, self._stops(image, untold))
        updated, assigned, stopped = await asyncio.gather(
            self._inform(self._metadata(image, untold)),
            # That there is no role at all is news, too: what lies there is nobody's.
            controlled.leader_and_isr(roles) if roles.topics or roles.is_full else _nothing(),
            controlled.stop_replica(stops) if stops.partitions else _nothing(),
        )
        if assigned is not None and assigned.error_code == ErrorCode.NONE:
            self._channels.told(self._told(roles, assigned.partitions))
        answers = [updated, assigned, stopped]
        codes = [ErrorCode(one.error_code) for one in answers if one is not None]
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

    def _metadata(self, image: ClusterImage, untold: _Untold) -> UpdateMetadataRequest:
        if untold.is_full:
            partitions = {name: range(len(one.partitions)) for name, one in image.topics.items()}
            topics = messages.topic_states(image, partitions)
            entities = messages.entity_settings(image, messages.all_entities(image))
            deleted: list[bytes] = []
            failed = messages.failed_replicas(image, image.failed_replicas)
        else:
            topics = messages.topic_states(image, untold.partitions)
            entities = messages.entity_settings(image, untold.entities)
            deleted = [topic_id.bytes for topic_id in untold.deleted_topics]
            failed = messages.failed_replicas(image, untold.failed)
        brokers = messages.live_brokers(image)
        return UpdateMetadataRequest(
            self._header, untold.is_full, brokers, topics, entities, deleted, failed
        )

    def _roles(self, image: ClusterImage, untold: _Untold) -> LeaderAndIsrRequest:
        """Of what this broker holds by now: some of it may have been taken away since."""
        held = {
            name: [number for number in numbers if self._holds(image, TopicPartition(name, number))]
            for name, numbers in untold.roles.items()
        }
        return LeaderAndIsrRequest(
            self._header,
            untold.is_full,
            messages.broker_epochs(image),
            messages.topic_states(image, {name: found for name, found in held.items() if found}),
        )

    def _holds(self, image: ClusterImage, one: TopicPartition) -> bool:
        state = image.partition(*one)
        return state is not None and self._broker_id in state.replicas

    def _stops(self, image: ClusterImage, untold: _Untold) -> list[StoppedReplica]:
        """Without those that this broker is to have again by now: it has just been told so."""
        return [
            stopped for stopped in untold.stopped.values() if not self._is_assigned(image, stopped)
        ]

    def _is_assigned(self, image: ClusterImage, stopped: StoppedReplica) -> bool:
        if not self._holds(image, TopicPartition(stopped.topic, stopped.partition)):
            return False
        return image.topics[stopped.topic].topic_id.bytes == stopped.topic_id

    def _told(self, roles: LeaderAndIsrRequest, failed: Sequence[FailedPartition]) -> Told:
        names: Mapping[bytes, str] = {topic.topic_id: topic.name for topic in roles.topics}
        cannot = frozenset(
            TopicPartition(names[one.topic_id], one.partition)
            for one in failed
            if one.topic_id in names
        )
        asked = frozenset(
            TopicPartition(topic.name, state.partition)
            for topic in roles.topics
            for state in topic.partitions
        )
        return Told(self._broker_id, asked - cannot, cannot)


async def _nothing() -> None:
    """Where there is nothing to tell."""
