"""Brokers that seem to have died a moment ago, or have: for clients that ask where to go.

A client whose leader dies asks another broker at once, a few milliseconds before anybody can have
been elected. Told the old leader again, it waits for its next look, half a second or more. So while
a connection of ours to some broker has just broken, answers about the cluster wait a little for the
controller's word. The kernel closes the connections of a killed process one after the other, and
the client's may come before ours; so an answer to who asks for leaders waits a moment first. And a
broker that has died is listed for a few seconds more, as it is in a Kafka
cluster until its session ends: librdkafka holds back what it has for a partition, for a second, if
the partition's former leader vanishes in the same answer that names the new one.

A controller that does not answer is not named to clients until it does, or another is elected. They
would wait for it: librdkafka's admin client does not ask again who is controller, and so for ever.

Brokers that are started together come up one after the other, and clients that wait for them ask
the first one before the others could be elected. Told that nobody leads they come back after a
second or two; so a broker that has just joined lets them wait for a leader.

Nothing is decided here; whether a broker lives is for the coordinator to say.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from tidelog.base.ids import BrokerId
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered, Change
from tidelog.core.controller.image import EMPTY_IMAGE, BrokerImage, ClusterImage

# A controller that dies with a thousand leaderships is succeeded, and those are moved, in less.
DOUBT_MAX_S = 1.0
# Longer than it takes to close all connections of a process that has thousands of files.
MOMENT_S = 0.005
LISTED_AFTER_DEATH_S = 3.0
# Brokers that are started together are up within less.
YOUTH_S = 2.0


class Departures:
    """Every method is called on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_suspected: Callable[[], None]) -> None:
        """`on_suspected` is called so that somebody may look whether it is true."""
        self._loop = loop
        self._on_suspected = on_suspected
        self._image = EMPTY_IMAGE
        self._doubted: dict[BrokerId, asyncio.TimerHandle] = {}
        self._silent: set[BrokerId] = set()
        self._departed: dict[BrokerId, tuple[BrokerImage, float]] = {}
        self._certain = asyncio.Event()
        self._news = asyncio.Event()
        self._is_joining = True
        self._joined_at = 0.0

    @property
    def is_in_doubt(self) -> bool:
        """Whether what the image says of leaders may change any moment."""
        return self._is_joining or bool(self._doubted)

    @property
    def are_possible(self) -> bool:
        """Whether there is anybody else in the cluster."""
        return len(self._image.brokers) > 1

    async def moment(self) -> None:
        """Return when it would be known here that a broker was killed, if a client knows it."""
        if self.are_possible:
            await asyncio.sleep(MOMENT_S)

    def answers(self, broker_id: BrokerId) -> bool:
        """Whether no connection to it broke that nobody could make again."""
        return broker_id not in self._silent

    async def certainty(self) -> None:
        """Return when the doubts have been settled, or have lasted long enough."""
        await self._certain.wait()  # Ended by the image, or by the timer of the last doubt.

    @property
    def is_young(self) -> bool:
        """Whether this broker has joined so lately that others may be about to."""
        return self._loop.time() < self._joined_at + YOUTH_S

    async def election(self, is_over: Callable[[], bool]) -> None:
        """Return when `is_over`, or when this broker is not young any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._joined_at + YOUTH_S):
                while self.is_young and not is_over():
                    self._news.clear()
                    await self._news.wait()  # Ended by the next image.

    def joined(self) -> None:
        """This broker is part of the cluster. What it knew before could mislead its first clients:
        they come as soon as it listens, and might be told of a cluster without brokers."""
        self._is_joining = False
        self._joined_at = self._loop.time()
        self._settle()

    def suspect(self, broker_id: BrokerId) -> None:
        """A connection to `broker_id` broke that had worked."""
        if broker_id not in self._image.brokers or broker_id in self._doubted:
            return
        self._silent.add(broker_id)
        self._doubted[broker_id] = self._loop.call_later(DOUBT_MAX_S, self._trust, broker_id)
        self._certain.clear()
        self._on_suspected()

    def trust(self, broker_id: BrokerId) -> None:
        """It answers again."""
        self._silent.discard(broker_id)
        if broker_id in self._doubted:
            self._trust(broker_id)

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        before, self._image = self._image, image
        self._news.set()
        for change in changes:
            match change:
                case BrokerGone(broker_id):
                    self._silent.discard(broker_id)
                    known = before.brokers.get(broker_id)
                    if known is not None:
                        self._departed[broker_id] = known, self._loop.time()
                    self._trust(broker_id)
                case BrokerRegistered(broker):
                    self._silent.discard(broker.broker_id)
                    self._departed.pop(broker.broker_id, None)
                    self._trust(broker.broker_id)
                case _:
                    pass

    def listed(self) -> list[BrokerImage]:
        """Who died so shortly ago that clients should not miss it yet."""
        if not self._departed:
            return []
        since = self._loop.time() - LISTED_AFTER_DEATH_S
        self._departed = {one: known for one, known in self._departed.items() if known[1] > since}
        return [broker for broker, _ in self._departed.values()]

    def _trust(self, broker_id: BrokerId) -> None:
        timer = self._doubted.pop(broker_id, None)
        if timer is not None:
            timer.cancel()
        self._settle()

    def _settle(self) -> None:
        if not self.is_in_doubt:
            self._certain.set()
