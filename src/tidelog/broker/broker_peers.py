"""Connections to other brokers by their ids, for who asks many of them, and itself.

What is asked of this broker takes no connection. A connection that failed is given up, and the next
question goes over a new one: the broker may be elsewhere when it comes back.

Nor is a broker waited for that is none any more. One that hangs keeps its connections, so that
nothing but its session tells: who asked it would wait until the request times out, long after
others have taken its place.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tidelog.base.errors import WireError
from tidelog.base.ids import BrokerId
from tidelog.broker.peers import Peer, PeerUnreachable
from tidelog.core.controller.changes import BrokerGone, Change
from tidelog.core.controller.image import ClusterImage

logger = logging.getLogger(__name__)

T = TypeVar("T")

Connect = Callable[[BrokerId], Peer | None]
"""Makes the connection; None while nobody knows where that broker is."""


class BrokerPeers:
    """One connection to each broker that was asked, and still answers."""

    def __init__(self, broker_id: BrokerId, connect: Connect) -> None:
        self._broker_id = broker_id
        self._connect = connect
        self._peers: dict[BrokerId, Peer] = {}

    async def ask(
        self,
        broker_id: BrokerId,
        *,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Peer], Awaitable[T]],
    ) -> T | None:
        """The answer of a broker; None if there is none, and nobody knows what it has done."""
        if broker_id == self._broker_id:
            return await here()
        peer = self._peers.get(broker_id) or self._connect(broker_id)
        if peer is None:
            return None
        self._peers[broker_id] = peer
        try:
            return await there(peer)
        except (PeerUnreachable, WireError) as error:
            logger.debug("broker does not answer", extra={"broker": broker_id, "reason": error})
            peer.close()
            if self._peers.get(broker_id) is peer:
                del self._peers[broker_id]
            return None

    def on_image(self, _image: ClusterImage, changes: Sequence[Change]) -> None:
        """Whoever waits for a broker that has gone is told that there is no answer."""
        for change in changes:
            if isinstance(change, BrokerGone):
                peer = self._peers.pop(change.broker_id, None)
                if peer is not None:
                    peer.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
