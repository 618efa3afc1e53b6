"""Registers this broker, holds or follows the controller's claim, and performs what is decided.

The rules are in `core/controller/`, the tree in `cluster_tree.py`, what a new controller does first
in `cluster_session.py`. Requests and news of claims go through one queue, so that one thing happens
at a time and every decision is made against the image that the last one left.

    request ──┐
    claim   ──┴─▶ queue ─▶ decide (core) ─▶ one fenced transaction ─▶ new image ─▶ subscribers

Promises:

    N1  An outcome without an error is stored before it is returned, and subscribers have heard.
    N2  A request is one transaction: all topics of it that may be created are, or none.
        (Deleting is two, see `cluster_tree.py`, and is finished by the next controller.)
    N3  If it is not known whether a write happened, the tree is read again before the next
        decision.
    N4  A lost session is announced (this broker is gone, nobody is controller) at once, whatever
        is under way; that is given up (C6). Then the broker joins again.

A request that is cancelled while it waits is carried out all the same.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar, assert_never

from tidelog.base.errors import (
    ConfigError,
    ErrorCode,
    RequestRefused,
    SessionLost,
    StorageError,
)
from tidelog.base.ids import NO_BROKER, TopicId
from tidelog.base.ports import Clock
from tidelog.broker.cluster_session import (
    ClusterSession,
    Connect,
    elect_leaders,
    join,
    load,
    new_id,
)
from tidelog.broker.cluster_tree import Fence
from tidelog.broker.large_requests import Aside
from tidelog.config.broker import BrokerConfig
from tidelog.config.dynamic import replace_topic
from tidelog.coordination.port import Coordinator, CoordinatorRefused, CoordinatorUnavailable
from tidelog.core.controller import configs, nodes, topics
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    Change,
    ControllerChanged,
    TopicCreated,
    TopicDeleted,
    broker_changes,
    changes_between,
)
from tidelog.core.controller.decision import Decision, Outcome
from tidelog.core.controller.election import partitions_led_by
from tidelog.core.controller.image import (
    EMPTY_IMAGE,
    BrokerImage,
    ClusterImage,
    Endpoint,
    LastStop,
    Settings,
)
from tidelog.core.controller.requests import (
    ConfigOutcome,
    ConfigReplacement,
    IncrementalChange,
    NewPartitions,
    NewTopic,
    TopicOutcome,
    TopicReference,
)

logger = logging.getLogger(__name__)

EVENTS_WAITING_MAX = 1_000
RETRY_BACKOFF_S = 1.0

Answer = TypeVar("Answer")
ImageCallback = Callable[[ClusterImage, Sequence[Change]], None]


@dataclass(frozen=True, slots=True)
class _Request:
    """`run` answers whoever asked and raises nothing that they could have caused."""

    run: Callable[[], Awaitable[None]]
    refuse: Callable[[RequestRefused], None]


@dataclass(frozen=True, slots=True)
class _ClaimsChanged:
    """The controller's claim came, went or changed hands."""


@dataclass(frozen=True, slots=True)
class _BrokersChanged:
    """A broker came or went."""


_Event = _Request | _ClaimsChanged | _BrokersChanged


class ControllerRunner:
    """Every method is called on the event loop. Requests wait until `run` is running.

    `connect` begins a new session with the coordinator; it is called again when one is lost.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        config: BrokerConfig,
        endpoints: tuple[Endpoint, ...],
        clock: Clock,
        chance: Random,
    ) -> None:
        self._connect = connect
        self._config = config
        self._clock = clock
        self._random = chance
        self._me = BrokerImage(
            config.broker_id, 0, endpoints, config.coordination.broker_rack, LastStop.CLEAN
        )
        self._chance = topics.Chance(chance.randrange, lambda: TopicId(new_id(chance)))
        self._image = EMPTY_IMAGE
        self._subscribers: list[ImageCallback] = []
        self._events: asyncio.Queue[_Event] = asyncio.Queue(EVENTS_WAITING_MAX)
        self._coordinator: Coordinator | None = None
        self._session: ClusterSession | None = None
        self._is_stale = False
        self._aside = Aside()

    @property
    def image(self) -> ClusterImage:
        """The newest image; EMPTY_IMAGE before `start` has returned."""
        return self._image

    @property
    def is_controller(self) -> bool:
        return self._session is not None and self._session.fence is not None

    def subscribe(self, callback: ImageCallback) -> None:
        """Call back on the loop with every new image and the changes that led to it.

        Whoever subscribes before `start` first hears of everything that is there.
        """
        self._subscribers.append(callback)

    # -- requests --------------------------------------------------------------------------------

    async def create_topics(
        self, requested: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicOutcome]:
        """One outcome per name, in the order of the request."""

        def decide() -> Decision[TopicOutcome]:
            return topics.create_topics(
                self._image,
                requested,
                defaults=topics.TopicDefaults(
                    num_partitions=self._config.replication.num_partitions,
                    default_replication_factor=self._config.replication.default_replication_factor,
                ),
                chance=self._chance,
                validate_configs=self._validate_configs,
            )

        return await self._decide(
            decide,
            self._commit,
            count=sum(max(1, one.partition_count, len(one.assignments)) for one in requested),
            validate_only=validate_only,
        )

    async def create_partitions(
        self, requested: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[TopicOutcome]:
        """One outcome per topic, in the order of the request."""
        return await self._decide(
            lambda: topics.create_partitions(self._image, requested),
            self._commit,
            count=sum(max(1, one.partition_count) for one in requested),
            validate_only=validate_only,
        )

    async def delete_topics(self, requested: Sequence[TopicReference]) -> list[TopicOutcome]:
        """One outcome per reference, in the order of the request."""
        return await self._decide(
            lambda: topics.delete_topics(
                self._image,
                requested,
                delete_topic_enable=self._config.replication.delete_topic_enable,
            ),
            self._delete,
            count=len(requested),
            validate_only=False,
        )

    async def alter_configs(
        self, requested: Sequence[ConfigReplacement], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        """Replace all settings of each resource (AlterConfigs)."""
        return await self._decide(
            lambda: configs.replace_configs(self._image, self._config, requested),
            self._commit,
            count=len(requested),
            validate_only=validate_only,
        )

    async def incremental_alter_configs(
        self, requested: Sequence[IncrementalChange], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        """Change single settings of each resource (IncrementalAlterConfigs)."""
        return await self._decide(
            lambda: configs.alter_configs(self._image, self._config, requested),
            self._commit,
            count=len(requested),
            validate_only=validate_only,
        )

    async def allocate_producer_ids(self) -> range:
        """The next 1,000 producer ids, which nobody gets again, whatever crashes.

        Raises RequestRefused(COORDINATOR_LOAD_IN_PROGRESS), which makes clients try again, while
        the coordinator does not answer.
        """
        try:
            return await self._ask(self._take_producer_ids)
        except RequestRefused as refusal:
            raise RequestRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, refusal.message) from None

    async def adopt_topics(self, found: Sequence[TopicCreated], *, producer_end_id: int) -> None:
        """Take over topics whose logs another cluster left on this broker's disks, ids and all.

        Producers of that cluster have ids below `producer_end_id`, which are not given again.
        Raises RequestRefused if that cannot be stored.
        """

        async def carry_out() -> None:
            session, fence = self._claim()
            await session.tree.skip_producer_ids(self._me.broker_id, producer_end_id)
            await self._commit(session, fence, found)

        await self._ask(carry_out)

    def _validate_configs(self, settings: Settings) -> None:
        replace_topic(settings, self._config)

    async def _decide(
        self,
        decide: Callable[[], Decision[Outcome]],
        write: Callable[[ClusterSession, Fence, Sequence[Change]], Awaitable[None]],
        *,
        count: int,
        validate_only: bool,
    ) -> list[Outcome]:
        async def carry_out() -> list[Outcome]:
            session, fence = self._claim()
            if self._is_stale:
                await self._load(session)
            decision = await self._aside.run(decide, count=count)
            if decision.changes and not validate_only:
                await write(session, fence, decision.changes)
            return decision.outcomes

        try:
            return await self._ask(carry_out)
        except RequestRefused as refusal:
            message = refusal.message or refusal.code.name
            decision = await self._aside.run(decide, count=count)
            if refusal.code is ErrorCode.NOT_CONTROLLER:
                return decision.void(refusal.code, message)
            return decision.failed(refusal.code, message)

    async def _ask(self, action: Callable[[], Awaitable[Answer]]) -> Answer:
        self._joined()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request = _Request(partial(self._answer, action, future), partial(_refuse, future))
        await self._events.put(request)
        if self._session is None:
            self._refuse_waiting()  # Lost while the queue was full; nobody may be serving it.
        return await future  # Ended by `run`, which answers or refuses everything it is asked.

    async def _answer(
        self, action: Callable[[], Awaitable[Answer]], future: asyncio.Future[Answer]
    ) -> None:
        try:
            answer = await action()
        except RequestRefused as refusal:
            _refuse(future, refusal)
        except SessionLost:
            _refuse(future, _away())  # `_serve_session` hears of it as well.
        except CoordinatorUnavailable as failure:
            self._is_stale = True  # N3
            _refuse(future, RequestRefused(ErrorCode.REQUEST_TIMED_OUT, str(failure)))
        except CoordinatorRefused as refusal:
            _refuse(future, self._on_write_refused(refusal))
        except asyncio.CancelledError:
            _refuse(future, _away())
            raise
        else:
            if not future.done():  # Done already: whoever asked was cancelled.
                future.set_result(answer)

    def _on_write_refused(self, refusal: CoordinatorRefused) -> RequestRefused:
        if refusal.path == nodes.CONTROLLER_EPOCH:
            logger.info("controller succeeded by another", extra={"broker": self._me.broker_id})
            self._joined().fence = None
        else:
            # Somebody else wrote to the tree. What they wrote counts; decide again on that.
            logger.warning("tree changed by another", extra={"node": refusal.path})
            self._is_stale = True
        return RequestRefused(ErrorCode.NOT_CONTROLLER, f"{refusal.path} was changed by another")

    async def _commit(
        self, session: ClusterSession, fence: Fence, changes: Sequence[Change]
    ) -> None:
        after = await self._apply(changes)
        prepared = await self._aside.run(
            partial(session.tree.prepare_write, fence, changes, after), count=_count(changes)
        )
        await session.tree.write(prepared)
        self._publish(after, changes)

    async def _apply(self, changes: Sequence[Change]) -> ClusterImage:
        return await self._aside.run(partial(self._image.apply_all, changes), count=_count(changes))

    async def _delete(
        self, session: ClusterSession, fence: Fence, changes: Sequence[Change]
    ) -> None:
        names = [change.name for change in changes if isinstance(change, TopicDeleted)]
        after = await self._apply(changes)
        await session.tree.mark_deletions(fence, names)
        self._publish(after, changes)
        try:
            await session.tree.finish_deletions(fence, names)
        except CoordinatorUnavailable as failure:
            # They are marked, and so gone. Loading again finishes what is left of them.
            logger.warning("deletion unfinished", extra={"topics": names}, exc_info=failure)
            self._is_stale = True

    async def _take_producer_ids(self) -> range:
        block = await self._joined().tree.take_producer_ids(self._me.broker_id)
        return range(block.first_id, block.end_id)

    def _joined(self) -> ClusterSession:
        if self._session is None:
            raise _away()
        return self._session

    def _claim(self) -> tuple[ClusterSession, Fence]:
        session = self._joined()
        if session.fence is None:
            raise RequestRefused(ErrorCode.NOT_CONTROLLER, "another broker is controller")
        return session, session.fence

    # -- joining and following -------------------------------------------------------------------

    async def start(self) -> ClusterImage:
        """Connect, register, stand for election, load what is there, finish what is half done.

        Raises ConfigError if a broker with this id is alive, StorageError if the coordinator's
        file or a node in it cannot be used, CoordinatorUnavailable if it does not answer.
        """
        await self._join()
        return self._image

    async def run(self) -> None:
        """Serve requests and follow claims until cancelled; joins again after a lost session."""
        try:
            while True:
                await self._serve_session()
                await self._rejoin()
        finally:
            self._session = None
            self._refuse_waiting()

    async def stop(self) -> None:
        """Give up the registration and the claim at once. To be called when `run` has ended."""
        if self._coordinator is not None:
            await self._coordinator.close()

    async def _join(self) -> None:
        coordination = self._config.coordination
        session = await join(
            self._connect,
            self._me,
            new_cluster_id=coordination.tidelog_cluster_id
            or nodes.encode_uuid(new_id(self._random)),
            joined_cluster_id=self._image.cluster_id or None,
            registration_timeout_ms=coordination.broker_session_timeout_ms,
            now_ms=self._clock.now_ms,
        )
        try:
            await self._stand_for_election(session)
        except BaseException:
            await session.coordinator.close()
            raise
        self._coordinator = session.coordinator
        self._session = session

    async def _stand_for_election(self, session: ClusterSession) -> None:
        session.fence = await session.tree.claim(self._me.broker_id, now_ms=self._clock.now_ms())
        if session.fence is not None:
            logger.info(
                "controller elected",
                extra={"broker": self._me.broker_id, "controller_epoch": session.fence.epoch},
            )
        await self._load(session)

    async def _load(self, session: ClusterSession) -> None:
        image = await load(session, self._config.topic_defaults)
        self._is_stale = False
        self._publish(image, changes_between(self._image, image))

    async def _serve_session(self) -> None:
        """Returns when the session is lost."""
        coordinator = self._joined().coordinator
        async with asyncio.TaskGroup() as tasks:
            workers = [
                tasks.create_task(
                    self._follow(coordinator.watch(nodes.CONTROLLER), _ClaimsChanged())
                ),
                tasks.create_task(
                    self._follow(coordinator.watch_children(nodes.BROKER_IDS), _BrokersChanged())
                ),
                tasks.create_task(self._serve()),
            ]
            await coordinator.session_lost()  # Ended by the loss, or when the broker stops.
            self._on_session_lost()
            for worker in workers:
                worker.cancel()

    async def _follow(self, states: AsyncIterator[object], event: _Event) -> None:
        with suppress(SessionLost):  # `_serve_session` hears of it.
            async for _state in states:
                await self._events.put(event)

    async def _serve(self) -> None:
        while True:
            event = await self._events.get()
            match event:
                case _Request(run, _):
                    await run()
                case _ClaimsChanged() | _BrokersChanged():
                    await self._on_claims(event)
                case _:
                    assert_never(event)

    async def _on_claims(self, event: _ClaimsChanged | _BrokersChanged) -> None:
        """Until it is done: the watch does not repeat what it said."""
        while True:  # Ends with success or with the session.
            try:
                session = self._joined()
                if self._is_stale:
                    await self._load(session)
                match event:
                    case _ClaimsChanged():
                        await self._on_controller_changed(session)
                    case _BrokersChanged():
                        await self._on_brokers_changed(session)
                    case _:
                        assert_never(event)
                return
            except SessionLost:
                return  # `_serve_session` hears of it as well.
            except CoordinatorRefused as refusal:
                self._on_write_refused(refusal)
            except CoordinatorUnavailable as failure:
                logger.warning("coordinator does not answer", exc_info=failure)
                self._is_stale = True  # N3
            # No request could be served now either, so nothing is held up.
            await asyncio.sleep(RETRY_BACKOFF_S)

    async def _on_controller_changed(self, session: ClusterSession) -> None:
        controller_id, controller_epoch = await session.tree.controller()
        if controller_id == NO_BROKER:
            await self._stand_for_election(session)
            return
        if controller_id != self._me.broker_id:
            session.fence = None
        seen = ControllerChanged(controller_id, controller_epoch)
        if seen != ControllerChanged(self._image.controller_id, self._image.controller_epoch):
            self._publish(self._image.apply(seen), [seen])

    async def _on_brokers_changed(self, session: ClusterSession) -> None:
        """Move every leadership of brokers that went, or came back anew, in one batch (C4)."""
        before = self._image.brokers
        brokers = await session.tree.brokers()
        after = self._image.apply_all(broker_changes(before, brokers))
        if session.fence is not None:
            unsteady = {each for each in before if before[each] != brokers.get(each)}
            leaderless = partitions_led_by(after, unsteady | {NO_BROKER})
            after = await elect_leaders(
                session.tree, session.fence, after, leaderless, self._config.topic_defaults
            )
        self._publish(after, changes_between(self._image, after))

    def _on_session_lost(self) -> None:
        """N4."""
        self._session = None
        changes: list[Change] = [ControllerChanged(NO_BROKER, self._image.controller_epoch)]
        if self._me.broker_id in self._image.brokers:
            changes.append(BrokerGone(self._me.broker_id))
        self._publish(self._image.apply_all(changes), changes)
        logger.warning("session lost", extra={"broker": self._me.broker_id})
        self._refuse_waiting()

    async def _rejoin(self) -> None:
        while True:
            try:
                await self._join()
            except (CoordinatorUnavailable, SessionLost, StorageError, ConfigError) as error:
                logger.error("cannot join the cluster again", exc_info=error)
                await asyncio.sleep(RETRY_BACKOFF_S)
            else:
                logger.info("joined the cluster again", extra={"broker": self._me.broker_id})
                return

    def _refuse_waiting(self) -> None:
        while not self._events.empty():
            event = self._events.get_nowait()
            if isinstance(event, _Request):
                event.refuse(_away())

    def _publish(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        if not changes:
            return
        self._image = image
        if any(isinstance(change, BrokerConfigChanged) for change in changes):
            self._config = self._config.with_dynamic(
                cluster_wide=image.broker_config(None),
                this_broker=image.broker_config(self._me.broker_id),
            )
        for callback in self._subscribers:
            callback(image, changes)


def _count(changes: Sequence[Change]) -> int:
    """How many partitions, or other things, `changes` are about."""
    return sum(
        len(change.topic.partitions) if isinstance(change, TopicCreated) else 1
        for change in changes
    )


def _away() -> RequestRefused:
    return RequestRefused(ErrorCode.NOT_CONTROLLER, "this broker is not in touch with the cluster")


def _refuse(future: asyncio.Future[Answer], refusal: RequestRefused) -> None:
    if not future.done():  # Done already: whoever asked was cancelled.
        future.set_exception(refusal)
