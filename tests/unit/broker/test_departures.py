"""Brokers that seem to have died: answers wait for the truth, but not for long (T6)."""

import asyncio

from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.ids import BrokerId
from tidelog.broker.departures import (
    DOUBT_MAX_S,
    LISTED_AFTER_DEATH_S,
    MOMENT_S,
    YOUTH_S,
    Departures,
)
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered
from tidelog.core.controller.image import EMPTY_IMAGE, BrokerImage, ClusterImage, LastStop

ONE, TWO = BrokerId(1), BrokerId(2)


def broker(broker_id: BrokerId, broker_epoch: int = 1) -> BrokerImage:
    return BrokerImage(broker_id, broker_epoch, (), None, LastStop.CLEAN)


class Watched:
    """Departures of a cluster of two, and how often somebody was asked to look."""

    def __init__(self) -> None:
        self.looks = 0
        self.departures = Departures(asyncio.get_running_loop(), self._look)
        self.image: ClusterImage = EMPTY_IMAGE
        self.tell(BrokerRegistered(broker(ONE)), BrokerRegistered(broker(TWO)))
        self.departures.joined()

    def _look(self) -> None:
        self.looks += 1

    def tell(self, *changes: BrokerRegistered | BrokerGone) -> None:
        self.image = self.image.apply_all(changes)
        self.departures.on_image(self.image, changes)

    async def waited_s(self) -> float:
        loop = asyncio.get_running_loop()
        since = loop.time()
        await self.departures.certainty()
        return loop.time() - since


@in_virtual_time
async def test_nothing_is_certain_before_the_broker_has_joined() -> None:
    departures = Departures(asyncio.get_running_loop(), lambda: None)
    assert departures.is_in_doubt
    asyncio.get_running_loop().call_later(0.5, departures.joined)
    await departures.certainty()
    assert asyncio.get_running_loop().time() == 0.5
    assert not departures.is_in_doubt


@in_virtual_time
async def test_a_lost_connection_makes_somebody_look_once() -> None:
    watched = Watched()
    watched.departures.suspect(TWO)
    watched.departures.suspect(TWO)
    assert watched.departures.is_in_doubt
    assert watched.looks == 1


@in_virtual_time
async def test_a_client_may_know_of_a_death_a_moment_before_we_do() -> None:
    watched = Watched()
    loop = asyncio.get_running_loop()
    loop.call_later(MOMENT_S / 2, watched.departures.suspect, TWO)
    assert not watched.departures.is_in_doubt
    await watched.departures.moment()
    assert loop.time() == MOMENT_S
    assert watched.departures.is_in_doubt


@in_virtual_time
async def test_who_is_alone_waits_for_nobody() -> None:
    watched = Watched()
    watched.tell(BrokerGone(TWO))
    await watched.departures.moment()
    assert asyncio.get_running_loop().time() == 0


@in_virtual_time
async def test_a_doubt_ends_with_the_news_that_the_broker_is_gone() -> None:
    watched = Watched()
    watched.departures.suspect(TWO)
    asyncio.get_running_loop().call_later(0.02, watched.tell, BrokerGone(TWO))
    assert round(await watched.waited_s(), 3) == 0.02


@in_virtual_time
async def test_a_doubt_ends_when_the_broker_answers_again() -> None:
    watched = Watched()
    watched.departures.suspect(TWO)
    watched.departures.trust(TWO)
    assert await watched.waited_s() == 0


@in_virtual_time
async def test_a_doubt_that_nobody_settles_does_not_last() -> None:
    watched = Watched()
    watched.departures.suspect(TWO)
    assert round(await watched.waited_s(), 3) == DOUBT_MAX_S


@in_virtual_time
async def test_who_is_gone_already_cannot_be_doubted() -> None:
    watched = Watched()
    watched.tell(BrokerGone(TWO))
    watched.departures.suspect(TWO)
    assert not watched.departures.is_in_doubt


@in_virtual_time
async def test_a_broker_that_died_is_listed_for_a_while() -> None:
    watched = Watched()
    watched.tell(BrokerGone(TWO))
    assert [one.broker_id for one in watched.departures.listed()] == [TWO]
    await asyncio.sleep(LISTED_AFTER_DEATH_S + 0.01)
    assert watched.departures.listed() == []


@in_virtual_time
async def test_a_broker_that_is_back_is_listed_once() -> None:
    watched = Watched()
    watched.tell(BrokerGone(TWO))
    watched.tell(BrokerRegistered(broker(TWO, 2)))
    assert watched.departures.listed() == []


@in_virtual_time
async def test_who_was_lost_does_not_answer_until_it_does_or_is_gone() -> None:
    watched = Watched()
    departures = watched.departures
    departures.suspect(TWO)
    await asyncio.sleep(10 * DOUBT_MAX_S)
    assert departures.answers(ONE)
    assert not departures.answers(TWO)
    departures.trust(TWO)
    assert departures.answers(TWO)
    departures.suspect(TWO)
    watched.tell(BrokerGone(TWO))
    assert departures.answers(TWO)


@in_virtual_time
async def test_a_young_broker_waits_for_an_election() -> None:
    watched = Watched()
    loop = asyncio.get_running_loop()
    loop.call_later(0.1, watched.tell, BrokerRegistered(broker(TWO, 2)))
    loop.call_later(0.2, watched.tell, BrokerRegistered(broker(TWO, 3)))
    await watched.departures.election(lambda: watched.image.brokers[TWO].broker_epoch == 3)
    assert loop.time() == 0.2


@in_virtual_time
async def test_a_broker_is_young_for_a_while_only() -> None:
    watched = Watched()
    loop = asyncio.get_running_loop()
    await watched.departures.election(lambda: False)
    assert loop.time() == YOUTH_S
    assert not watched.departures.is_young
    await watched.departures.election(lambda: False)
    assert loop.time() == YOUTH_S


@in_virtual_time
async def test_nobody_waits_for_an_election_that_is_over() -> None:
    watched = Watched()
    await watched.departures.election(lambda: True)
    assert asyncio.get_running_loop().time() == 0
