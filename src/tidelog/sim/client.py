"""A client of the simulated cluster: finds leaders, asks them, and looks again when they are not.

As real clients do: metadata from any broker, a connection for each leader, and after an error or
silence another look at the metadata after a short rest.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol, TypeVar

from tidelog.base.errors import WireError
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.network import Network
from tidelog.broker.peers import Address, Peer, PeerUnreachable
from tidelog.sim.protocol import (
    METADATA_VERSION,
    ClusterMetadata,
    PartitionLeader,
    decode_metadata_response,
    encode_metadata_request,
)
from tidelog.wire.api import ApiKey, decode_response_header

T = TypeVar("T")

REQUEST_TIMEOUT_MS = 4_000
ANSWER_MAX_BYTES = 2**24
NOBODY = PartitionLeader(-1, -1)


class Speaker(Protocol):
    """In whose name a client speaks: a simulated process, or a real one."""

    @property
    def name(self) -> str: ...

    @property
    def random(self) -> Random: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class SimulatedClient:
    """Speaks to brokers in the name of one process."""

    def __init__(
        self, process: Speaker, network: Network, brokers: Sequence[Address], topic: str
    ) -> None:
        self.name = process.name
        self.random = process.random
        self._loop = process.loop
        self._network = network
        self._bootstrap = list(brokers)
        self._topic = topic
        self._peers: dict[Address, Peer] = {}
        self._metadata = ClusterMetadata({}, {})
        self.timeout_ms = REQUEST_TIMEOUT_MS
        """How long it waits for an answer of whomever it has not asked before."""

    def leader_of(self, partition: int) -> PartitionLeader:
        """Who leads, as far as this client knows."""
        return self._metadata.leaders.get((self._topic, partition), NOBODY)

    async def ask_leader(
        self,
        partition: int,
        api_key: ApiKey,
        version: int,
        encode: Callable[[int, str], bytes],
        decode: Callable[[memoryview, int], T],
    ) -> T:
        """Ask the leader of `partition`. Raises PeerUnreachable or WireError."""
        address = self.leader_at(partition)
        return await self.ask(address, api_key, version, encode, decode)

    def send_to_leader(self, partition: int, encode: Callable[[int, str], bytes]) -> None:
        """Send what is not answered. Raises PeerUnreachable if there is no connection."""
        peer = self._peer(self.leader_at(partition))
        peer.send_only(encode(peer.next_correlation_id(), self.name))

    async def connect_to_leader(self, partition: int) -> None:
        await self._peer(self.leader_at(partition)).connect()

    async def ask(
        self,
        address: Address,
        api_key: ApiKey,
        version: int,
        encode: Callable[[int, str], bytes],
        decode: Callable[[memoryview, int], T],
    ) -> T:
        peer = self._peer(address)
        answer = await peer.request(encode(peer.next_correlation_id(), self.name))
        _, position = decode_response_header(answer, api_key, version)
        return decode(answer, position)

    async def look_again(self) -> None:
        """Rest a moment, then ask any broker who leads. Knows what it knew if none answers."""
        await asyncio.sleep(self.random.uniform(0.02, 0.2))
        address = self.random.choice(self._bootstrap)
        try:
            self._metadata = await self.ask(
                address,
                ApiKey.METADATA,
                METADATA_VERSION,
                lambda number, name: encode_metadata_request(number, name, [self._topic]),
                decode_metadata_response,
            )
        except (PeerUnreachable, WireError):
            return

    def any_broker(self) -> Address:
        return self.random.choice(self._bootstrap)

    def leader_at(self, partition: int) -> Address:
        """Where the leader listens. Raises PeerUnreachable if nobody is known to lead."""
        return self.broker_at(self.leader_of(partition).leader)

    def broker_at(self, broker_id: int) -> Address:
        """Where a broker listens. Raises PeerUnreachable if it is not known."""
        broker = self._metadata.brokers.get(broker_id)
        if broker is None:
            raise PeerUnreachable(f"nobody knows broker {broker_id}")
        return Address(*broker)

    def close(self) -> None:
        """Hang up on everybody."""
        for peer in self._peers.values():
            peer.close()

    def _peer(self, address: Address) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(
                address,
                network=self._network,
                loop=self._loop,
                timeout_ms=self.timeout_ms,
                answer_max_bytes=ANSWER_MAX_BYTES,
                turns=HeavyTurns(self._loop, pause_s=0),
            )
        return peer
