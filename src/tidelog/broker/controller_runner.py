"""Registers this broker, holds or follows the controller's claim, and performs what is decided.

The rules are in `core/controller/`, the tree in `cluster_tree.py`, what clients may ask for in
`admin_requests.py`, how brokers hear of it in `broker_channels.py`. Everything that happens goes
through one queue, so that one thing happens at a time and every decision is made against the image
that the last one left.

    request ──┐
    claim   ──┼─▶ queue ─▶ decide (core) ─▶ fenced write ─▶ new image ─┬─▶ subscribers
    brokers ──┘                                                        └─▶ channels to all brokers

A broker that is not controller has an image as well: what it read when it joined, and then what the
controller tells it (`follow`).

Promises:

    N1  An outcome without an error is stored before it is returned, and subscribers have heard.
    N2  A request is one transaction: all topics of it that may be created are, or none; unless it
        is larger than a store takes. (Deleting is two, see `cluster_tree.py`.) What is left half
        done is finished by the next controller.
    N3  If it is not known whether a write happened, the tree is read again before the next
        decision, and by itself: what was written has to be told.
    N4  A lost session is announced (this broker is gone, nobody is controller) at once, whatever
        is under way; that is given up (C6). Then the broker joins again.

A request that is cancelled while it waits is carried out all the same.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from typing import TypeVar, assert_never

from tidelog.base.errors import (
    ConfigError,
    ErrorCode,
    RequestRefused,
    SessionLost,
    StorageError,
)
from tidelog.base.ids import NO_BROKER, BrokerId
from tidelog.base.ports import Clock
from tidelog.broker.broker_channels import BrokerChannels, Speaker, Told
from tidelog.broker.cluster_session import (
    NOT_REGISTERED,
    ClusterSession,
    Connect,
    begin,
    new_id,
    register,
)
from tidelog.broker.cluster_tree import AnotherCluster, Fence
from tidelog.broker.controller_view import ControllerView, affected_by
from tidelog.broker.large_requests import Aside
from tidelog.config.broker import BrokerConfig
from tidelog.coordination.port import Coordinator, CoordinatorRefused, CoordinatorUnavailable
from tidelog.core.controller import nodes
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    Change,
    ControllerChanged,
    TopicCreated,
    broker_changes,
    changes_between,
)
from tidelog.core.controller.election import Candidates, Elections
from tidelog.core.controller.image import (
    EMPTY_IMAGE,
    NO_CONTROLLER_EPOCH,
    BrokerImage,
    ClusterImage,
    Endpoint,
    LastStop,
)
from tidelog.core.controller.membership import (
    on_brokers_changed,
    on_loaded,
    on_replicas_changed,
)
from tidelog.core.controller.nodes import ControllerClaim

logger = logging.getLogger(__name__)

EVENTS_WAITING_MAX = 1_000
RETRY_BACKOFF_S = 1.0
GENERATION_RETRIES_MAX = 100

Answer = TypeVar("Answer")
ImageCallback = Callable[[ClusterImage, Sequence[Change]], None]

NO_CLAIM = ControllerClaim(NO_BROKER, NO_CONTROLLER_EPOCH, nodes.NO_TOKEN)


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


@dataclass(frozen=True, slots=True)
class _LogDirsChanged:
    """A log directory of some broker failed or works again."""


@dataclass(frozen=True, slots=True)
class _RolesTold:
    """A broker has answered a LeaderAndIsr."""

    told: Told


@dataclass(frozen=True, slots=True)
class _TreeUnknown:
    """It is not known what the tree holds."""


_News = _ClaimsChanged | _BrokersChanged | _LogDirsChanged | _RolesTold | _TreeUnknown
_Event = _Request | _News


class ControllerRunner:
    """Every method is called on the event loop. Requests wait until `run` is running.

    `connect` begins a new session with the coordinator; it is called again when one is lost.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        config: BrokerConfig,
        clock: Clock,
        chance: Random,
    ) -> None:
        self._connect = connect
        self._config = config
        self._clock = clock
        self._random = chance
        self._image = EMPTY_IMAGE
        self._claim = NO_CLAIM
        self._me: BrokerImage | None = None
        self._registered_epoch = NOT_REGISTERED
        self._subscribers: list[ImageCallback] = []
        self._events: asyncio.Queue[_Event] = asyncio.Queue(EVENTS_WAITING_MAX)
        self._session: ClusterSession | None = None
        self._channels: BrokerChannels | None = None
        self._is_stale = False
        self._has_ended = False
        self._log_dir_event_numbers = count()
        self.aside = Aside()
        self.view = ControllerView()

    @property
    def image(self) -> ClusterImage:
        """The newest image; EMPTY_IMAGE before `join` has returned."""
        return self._image

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings, dynamic ones included."""
        return self._config

    @property
    def random(self) -> Random:
        return self._random

    @property
    def is_controller(self) -> bool:
        return self._session is not None and self._session.fence is not None

    @property
    def claim(self) -> ControllerClaim:
        """Who is controller, as far as is known."""
        return self._claim

    @property
    def broker_epoch(self) -> int:
        return NOT_REGISTERED if self._session is None else self._session.broker_epoch

    def is_reliable(self, for_ms: int) -> bool:
        """Whether what this broker was told to be holds for so long; see `SessionGate`.

        Also while it has no session: then it is nothing (N4).
        """
        return self._session is None or self._session.coordinator.is_reliable(for_ms)

    @property
    def is_admitted(self) -> bool:
        """Whether the controller has taken note of this broker's last registration.

        It has stored by then what follows from how this broker had stopped (R13).
        """
        me = self._image.brokers.get(self._broker_id)
        return me is not None and me.broker_epoch == self._registered_epoch

    def subscribe(self, callback: ImageCallback) -> None:
        """Call back on the loop with every new image and the changes that led to it."""
        self._subscribers.append(callback)

    def use_channels(self, channels: BrokerChannels) -> None:
        """Tell brokers through `channels` what is decided while this broker is controller."""
        self._channels = channels

    # -- questions -------------------------------------------------------------------------------

    async def ask(self, action: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run `action` when its turn has come. Raises RequestRefused."""
        self.joined()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request = _Request(partial(self._answer, action, future), partial(_refuse, future))
        await self._events.put(request)
        if self._session is None or self._has_ended:
            self._refuse_waiting()  # Since when the queue was full; nobody may be serving it.
        return await future  # Ended by `run`, which answers or refuses everything it is asked.

    async def _answer(
        self, action: Callable[[], Awaitable[Answer]], future: asyncio.Future[Answer]
    ) -> None:
        try:
            answer = await self._despite_registrations(action)
        except RequestRefused as refusal:
            _refuse(future, refusal)
        except SessionLost:
            _refuse(future, _away())  # `_serve_session` hears of it as well.
        except CoordinatorUnavailable as failure:
            self.mark_stale()  # N3
            _refuse(future, RequestRefused(ErrorCode.REQUEST_TIMED_OUT, str(failure)))
        except CoordinatorRefused as refusal:
            _refuse(future, self._on_write_refused(refusal))
        except asyncio.CancelledError:
            _refuse(future, _away())
            raise
        else:
            if not future.done():  # Done already: whoever asked was cancelled.
                future.set_result(answer)

    async def _despite_registrations(self, action: Callable[[], Awaitable[Answer]]) -> Answer:
        """Decide again where a broker registered between the decision and its write."""
        for _ in range(GENERATION_RETRIES_MAX):
            try:
                return await action()
            except CoordinatorRefused as refusal:
                if refusal.path != nodes.BROKER_GENERATION:
                    raise
                await self._on_brokers_changed(self.joined())
        raise CoordinatorUnavailable("brokers come and go too fast")

    def _on_write_refused(self, refusal: CoordinatorRefused) -> RequestRefused:
        if refusal.path == nodes.CONTROLLER_EPOCH:
            logger.info("controller succeeded by another", extra={"broker": self._broker_id})
            self._give_up_claim()
        else:
            # Somebody else wrote to the tree. What they wrote counts; decide again on that.
            logger.warning("tree changed by another", extra={"node": refusal.path})
            self.mark_stale()
        return RequestRefused(ErrorCode.NOT_CONTROLLER, f"{refusal.path} was changed by another")

    def joined(self) -> ClusterSession:
        """The session, or RequestRefused."""
        if self._session is None:
            raise _away()
        return self._session

    async def claimed(self) -> tuple[ClusterSession, Fence]:
        """Session and fence of the controller that this broker is, its image being fresh.

        Raises RequestRefused(NOT_CONTROLLER).
        """
        session = self.joined()
        if session.fence is None:
            raise RequestRefused(ErrorCode.NOT_CONTROLLER, "another broker is controller")
        if self._is_stale:
            await self._load(session)
        return session, session.fence

    async def commit(self, changes: Sequence[Change]) -> None:
        """Store `changes`, then let everybody know. To be called within `ask`, as controller."""
        session, fence = await self.claimed()
        before = self._image
        after = await self.apply(changes)
        prepared = await self.aside.run(
            partial(session.tree.prepare_write, fence, before, changes, after),
            count=_count(changes),
        )
        await session.tree.write(prepared)
        self.publish(after, changes)

    async def commit_elections(self, elections: Elections) -> None:
        """Store what follows for partitions from some event, and say what it may have cost."""
        if elections.changes:
            await self.commit(elections.changes)
        self.view.note_unclean(elections.unclean)

    async def apply(self, changes: Sequence[Change]) -> ClusterImage:
        return await self.aside.run(partial(self._image.apply_all, changes), count=_count(changes))

    def mark_stale(self) -> None:
        """Have the tree read again, soon and before the next decision."""
        self._is_stale = True
        with suppress(asyncio.QueueFull):  # Whatever is in it does the same.
            self._events.put_nowait(_TreeUnknown())

    async def delivered(self, within_s: float) -> None:
        """Return once all brokers that answer have done what this one has published, or time is
        up."""
        if self._channels is not None:
            await self._channels.delivered(within_s)

    async def known(self, within_s: float) -> None:
        """Return once all brokers that answer know what this one has published, or time is up."""
        if self._channels is not None:
            await self._channels.known(within_s)

    # -- joining ---------------------------------------------------------------------------------

    @property
    def _broker_id(self) -> BrokerId:
        return self._config.broker_id

    async def join(self, belongs_to: str | None) -> ClusterImage:
        """Begin a session and read the cluster as it is, without being part of it yet.

        `belongs_to` is the cluster of which this broker has replicas, if it is known to have been
        in one. Raises ConfigError if the coordinator has another one or none, StorageError if its
        file or a node in it cannot be used, CoordinatorUnavailable if it does not answer.
        """
        try:
            session = await self._begin(belongs_to)
        except AnotherCluster as error:
            raise ConfigError(
                f"log.dirs belongs to cluster {belongs_to}, but {error}: give tidelog.coordination"
                " or zookeeper.connect of that cluster, or remove meta.properties from log.dirs to"
                " make a new cluster of what lies there"
            ) from None
        try:
            loaded = await session.tree.load(session.cluster_id, is_controller=False)
        except BaseException:
            await session.coordinator.close()
            raise
        self._session = session
        self.publish(loaded.image, changes_between(self._image, loaded.image))
        return self._image

    async def register(self, endpoints: tuple[Endpoint, ...], stop: LastStop) -> None:
        """Become part of the cluster: register, and stand for election.

        Raises ConfigError if a broker with this id is alive.
        """
        self._me = BrokerImage(
            self._broker_id, 0, endpoints, self._config.coordination.broker_rack, stop
        )
        await self._register(self.joined())

    async def _begin(self, belongs_to: str | None) -> ClusterSession:
        configured = self._config.coordination.tidelog_cluster_id
        return await begin(
            self._connect,
            new_cluster_id=configured or nodes.encode_uuid(new_id(self._random)),
            joined_cluster_id=belongs_to,
        )

    async def _register(self, session: ClusterSession) -> None:
        assert self._me is not None
        await register(
            session,
            self._me,
            registration_timeout_ms=self._config.coordination.registration_timeout_ms,
            now_ms=self._clock.now_ms,
        )
        self._registered_epoch = session.broker_epoch
        await self._stand_for_election(session)

    async def run(self) -> None:
        """Serve requests and follow claims until cancelled; joins again after a lost session."""
        try:
            while True:
                await self._serve_session()
                await self._rejoin()
        finally:
            # The session is kept until all logs are closed, and somebody may ask until then.
            self._has_ended = True
            self._stop_channels()
            self._refuse_waiting()

    async def stop(self) -> None:
        """Give up the registration and the claim at once. To be called when `run` has ended."""
        session, self._session = self._session, None
        if session is not None:
            await session.coordinator.close()

    async def _rejoin(self) -> None:
        said = ""
        while True:
            try:
                session = await self._begin(self._image.cluster_id)
                try:
                    await self._register(session)
                except BaseException:
                    await session.coordinator.close()
                    raise
            except (CoordinatorUnavailable, SessionLost, StorageError, ConfigError) as error:
                if str(error) != said:  # Once is enough; it may be so for hours.
                    logger.error("cannot join the cluster again", extra={"reason": error})
                said = str(error)
                await asyncio.sleep(RETRY_BACKOFF_S)
            else:
                self._session = session
                logger.info("joined the cluster again", extra={"broker": self._broker_id})
                return

    # -- the claim -------------------------------------------------------------------------------

    async def _stand_for_election(self, session: ClusterSession) -> None:
        token = self._random.randbytes(nodes.TOKEN_BYTES)
        session.fence = await session.tree.claim(
            self._broker_id, token=token, now_ms=self._clock.now_ms()
        )
        if session.fence is None:
            self._claim = await session.tree.controller()
            return
        self._claim = ControllerClaim(self._broker_id, session.fence.epoch, session.fence.token)
        logger.info(
            "controller elected",
            extra={"broker": self._broker_id, "controller_epoch": session.fence.epoch},
        )
        self.view.clear()
        self._stop_channels()
        await self._load(session)

    async def look_up_claim(self) -> ControllerClaim:
        """The newest claim, from the coordinator."""
        session = self._session
        if session is None:
            raise SessionLost("this broker is not in touch with the cluster")
        before = session.fence
        found = await session.tree.controller()
        if session.fence is not None and (before is None or before.epoch != session.fence.epoch):
            return self._claim  # This broker was elected meanwhile: what was found is older.
        self._claim = found
        if found.controller_id != self._broker_id and session.fence is not None:
            # Succeeded without having noticed. What the other one says counts from now on.
            self._give_up_claim()
        return found

    async def look_around(self) -> None:
        """Have the coordinator notice at once what it would notice soon: a broker seems gone."""
        if self._session is not None:
            with suppress(SessionLost, CoordinatorUnavailable):
                await self._session.coordinator.get(nodes.CONTROLLER)

    def _give_up_claim(self) -> None:
        if self._session is not None:
            self._session.fence = None
        self._stop_channels()

    def _stop_channels(self) -> None:
        if self._channels is not None:
            self._channels.stop()

    async def _load(self, session: ClusterSession) -> None:
        """Read everything, finish what is half done, and let everybody know where things stand."""
        assert session.fence is not None
        while True:  # Ends when no broker registers in between.
            try:
                await self._load_once(session)
                break
            except CoordinatorRefused as refusal:
                if refusal.path != nodes.BROKER_GENERATION:
                    raise
        fence = session.fence
        if self._channels is not None and fence is not None:
            self._channels.start(Speaker(self._broker_id, fence.epoch, fence.token), self._image)

    async def _load_once(self, session: ClusterSession) -> None:
        loaded = await session.tree.load(session.cluster_id, is_controller=True)
        if session.fence is None:
            return  # Succeeded meanwhile (`look_up_claim`): the other one says where things stand.
        fence = session.fence = replace(session.fence, generation=loaded.generation)
        if loaded.deleting:
            await session.tree.finish_deletions(fence, loaded.deleting)
        if loaded.stateless:
            await session.tree.write_first_states(fence, loaded.image, loaded.stateless)
        image = loaded.image
        candidates = self.view.candidates(image.brokers, image, self._config.topic_defaults)
        elections = on_loaded(image, loaded.written_at, candidates)
        after = image.apply_all(elections.changes)
        if elections.changes:
            await session.tree.write(
                session.tree.prepare_write(fence, image, elections.changes, after)
            )
        self.view.note_unclean(elections.unclean)
        self._is_stale = False
        after = after.apply_all(self.view.failed_changes(after))
        self.publish(after, changes_between(self._image, after))

    # -- following -------------------------------------------------------------------------------

    def follow(self, changes: Sequence[Change]) -> None:
        """The controller, which is another broker, says what has become of the cluster."""
        if not self.is_controller and changes:
            self.publish(self._image.apply_all(changes), changes)

    async def _serve_session(self) -> None:
        """Returns when the session is lost."""
        coordinator = self.joined().coordinator
        async with asyncio.TaskGroup() as tasks:
            workers = [
                tasks.create_task(self._serve()),
                *(
                    tasks.create_task(self._follow(states, event))
                    for states, event in self._watches(coordinator)
                ),
            ]
            await coordinator.session_lost()  # Ended by the loss, or when the broker stops.
            self._on_session_lost()
            for worker in workers:
                worker.cancel()

    def _watches(self, coordinator: Coordinator) -> list[tuple[AsyncIterator[object], _News]]:
        return [
            (coordinator.watch(nodes.CONTROLLER), _ClaimsChanged()),
            (coordinator.watch_children(nodes.BROKER_IDS), _BrokersChanged()),
            # Who goes and comes back before anybody looks leaves the same names behind.
            (coordinator.watch(nodes.BROKER_GENERATION), _BrokersChanged()),
            (coordinator.watch_children(nodes.LOG_DIR_EVENTS), _LogDirsChanged()),
        ]

    async def _follow(self, states: AsyncIterator[object], event: _News) -> None:
        with suppress(SessionLost):  # `_serve_session` hears of it.
            async for _state in states:
                await self._events.put(event)

    async def _serve(self) -> None:
        while True:
            event = await self._events.get()
            if isinstance(event, _Request):
                await event.run()
            else:
                await self._on_news(event)

    async def _on_news(self, event: _News) -> None:
        """Until it is done: who brought it does not repeat what it said."""
        while True:  # Ends with success or with the session.
            try:
                session = self.joined()
                if self._is_stale and session.fence is not None:
                    await self._load(session)
                await self._despite_registrations(partial(self._handle, session, event))
                return
            except (SessionLost, RequestRefused):
                return  # `_serve_session` hears of it as well.
            except CoordinatorRefused as refusal:
                self._on_write_refused(refusal)
            except CoordinatorUnavailable as failure:
                logger.warning("coordinator does not answer", exc_info=failure)
                self._is_stale = True  # N3
            # No request could be served now either, so nothing is held up.
            await asyncio.sleep(RETRY_BACKOFF_S)

    async def _handle(self, session: ClusterSession, event: _News) -> None:
        match event:
            case _ClaimsChanged():
                await self._on_controller_changed(session)
            case _BrokersChanged():
                await self._on_brokers_changed(session)
            case _LogDirsChanged():
                await self._on_log_dirs_changed(session)
            case _RolesTold(told):
                await self._on_roles_told(session, told)
            case _TreeUnknown():
                pass  # Known by now: it is read before any event is handled.
            case _:
                assert_never(event)

    async def _on_controller_changed(self, session: ClusterSession) -> None:
        claim = await self.look_up_claim()
        is_unknown = claim.controller_id == self._broker_id and session.fence is None
        if claim.controller_id == NO_BROKER or is_unknown:
            await self._stand_for_election(session)
            return
        if claim.controller_id != self._broker_id and session.fence is not None:
            self._give_up_claim()
        seen = ControllerChanged(claim.controller_id, claim.controller_epoch)
        if seen != ControllerChanged(self._image.controller_id, self._image.controller_epoch):
            self.publish(self._image.apply(seen), [seen])

    async def _on_brokers_changed(self, session: ClusterSession) -> None:
        """Move every leadership of brokers that went, or came back anew, in one batch (C4)."""
        if session.fence is None:
            return  # Whoever is controller sees it as well, and says what follows.
        registrations = await session.tree.registrations()
        if session.fence is None:
            return  # Succeeded meanwhile.
        session.fence = replace(session.fence, generation=registrations.generation)
        brokers = registrations.brokers
        before = self._image
        self.view.forget_brokers(before.brokers, brokers)
        candidates = self.view.candidates(brokers, before, self._config.topic_defaults)
        elections = on_brokers_changed(before, candidates)
        moved = before.apply_all(elections.changes)
        if elections.changes:
            await session.tree.write(
                session.tree.prepare_write(session.fence, before, elections.changes, moved)
            )
        registered = list(broker_changes(before.brokers, brokers))
        self.view.note_unclean(elections.unclean)
        # Neither kind of change touches what the other is about, so their order does not matter.
        self.publish(moved.apply_all(registered), [*registered, *elections.changes])

    async def _on_log_dirs_changed(self, session: ClusterSession) -> None:
        """Ask the brokers that say so how their replicas are; the answers are news."""
        if session.fence is None:
            return
        for broker_id in await session.tree.take_log_dir_events(session.fence):
            self.repeat_roles(broker_id)

    async def _on_roles_told(self, session: ClusterSession, told: Told) -> None:
        if session.fence is None:
            return
        self.view.note_told(told)
        affected = affected_by(told, self._image)
        await self.commit_elections(on_replicas_changed(self._image, affected, self.candidates()))
        failed = self.view.failed_changes(self._image)
        self.publish(self._image.apply_all(failed), failed)

    def on_told(self, told: Told) -> None:
        """A broker has answered a LeaderAndIsr: which of its replicas work, which do not."""
        if self.view.is_news(told):
            with suppress(asyncio.QueueFull):  # It is asked again.
                self._events.put_nowait(_RolesTold(told))

    def on_succeeded(self, code: ErrorCode) -> None:
        """A broker knows of another controller."""
        logger.info("controller refused", extra={"broker": self._broker_id, "error": code.name})
        with suppress(asyncio.QueueFull):
            self._events.put_nowait(_ClaimsChanged())

    async def tell_log_dirs_changed(self) -> None:
        """Have the controller ask how the replicas of this broker are. Raises RequestRefused."""
        number = next(self._log_dir_event_numbers)

        async def carry_out() -> None:
            await self.joined().tree.tell_log_dir_event(self._broker_id, number)

        await self.ask(carry_out)

    def repeat_roles(self, broker_id: BrokerId) -> None:
        """Tell a broker again who leads what: it seems to have missed something."""
        if self._channels is not None:
            self._channels.repeat_roles(broker_id)

    def candidates(self) -> Candidates:
        """Who may lead, as far as the newest image and the brokers themselves say."""
        return self.view.candidates(self._image.brokers, self._image, self._config.topic_defaults)

    def _on_session_lost(self) -> None:
        """N4."""
        self._session = None
        self._stop_channels()
        changes: list[Change] = [ControllerChanged(NO_BROKER, self._image.controller_epoch)]
        if self._broker_id in self._image.brokers:
            changes.append(BrokerGone(self._broker_id))
        self.publish(self._image.apply_all(changes), changes)
        logger.warning("session lost", extra={"broker": self._broker_id})
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        while not self._events.empty():
            event = self._events.get_nowait()
            if isinstance(event, _Request):
                event.refuse(_away())

    def publish(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """Everybody here, and every other broker if this one is controller, hears of `image`."""
        if not changes:
            return
        before, self._image = self._image, image
        if self.is_admitted and self._me is not None:
            # What comes next is a registration of the same process, whose disks lost nothing.
            self._me = replace(self._me, stop=LastStop.CLEAN)
        if any(isinstance(change, BrokerConfigChanged) for change in changes):
            # What is left out is logged by Replicas, which applies the same settings.
            self._config = self._config.with_fitting(
                cluster_wide=image.broker_config(None),
                this_broker=image.broker_config(self._broker_id),
            )
        for callback in self._subscribers:
            callback(image, changes)
        if self._channels is not None:
            self._channels.on_published(before, image, changes)


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
