"""The steps that a transaction takes in the simulator, in order, and a blow at one of them.

A step is what brokers and one client do that could be half done when somebody dies:

    broker-2 appends to __transaction_state-0      any replica, leader or follower
    producer sends END_TXN to broker-2             a request leaves
    broker-2 gets END_TXN of producer              it arrives
    broker-2 answers END_TXN of producer           the answer leaves
    producer is answered END_TXN by broker-2       it arrives

Of what brokers say to each other, only what transactions make them say. The same seed takes the
same steps until something is done to it, so a step that was seen once is found again by its number.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from struct import Struct
from typing import Final, TypeVar
from unittest.mock import patch

from tidelog.base.ports import BytesLike
from tidelog.sim.brokers import PORT
from tidelog.sim.disk import ProcessDisk
from tidelog.sim.stream import Item, Stream
from tidelog.sim.transport import SimulatedTransport
from tidelog.storage.faulty_disk import FaultyLogFile
from tidelog.wire.api import ApiKey

T = TypeVar("T")

OF_TRANSACTIONS: Final = frozenset({ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS})

_REQUEST = Struct(">ihhi")
_ANSWER = Struct(">ii")
_SIZE_BYTES: Final = 4


class Moment(Enum):
    BEFORE = "before"
    AFTER = "after"


class Steps:
    """What was done since `begin`, and what is to happen to whom at one of them."""

    def __init__(self, client: str, topics: frozenset[str]) -> None:
        """Steps of the process `client`, and of all brokers in partitions of `topics`."""
        self.taken: list[str] = []
        self._client = client
        self._topics = topics
        self._is_begun = False
        self._struck: tuple[int, Moment] | None = None
        self._strike: Callable[[], None] = lambda: None
        self._asked: dict[tuple[SimulatedTransport, int], ApiKey] = {}
        self._under_way: dict[Stream, deque[tuple[int, list[str]]]] = {}

    def begin(self) -> None:
        self._is_begun = True

    def strike_at(self, number: int, moment: Moment, strike: Callable[[], None]) -> None:
        """Call `strike` just before or just after the step with this number."""
        self._struck = (number, moment)
        self._strike = strike

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts, whatever is simulated is looked at."""
        send, deliver, append = Stream.send, Stream.deliver, FaultyLogFile.append

        def watched_send(stream: Stream, data: bytes) -> None:
            sent, heard = self._names(stream, data)
            self._under_way.setdefault(stream, deque()).append((len(data), heard))
            self._take(sent, lambda: _is_alive(stream) and send(stream, data))

        def watched_deliver(stream: Stream, item: Item) -> None:
            self._take(self._arrived(stream, item), lambda: deliver(stream, item))

        def watched_append(file: FaultyLogFile, data: BytesLike) -> int:
            return self._take(self._appended(file), lambda: append(file, data))

        with (
            patch.object(Stream, "send", watched_send),
            patch.object(Stream, "deliver", watched_deliver),
            patch.object(FaultyLogFile, "append", watched_append),
        ):
            yield

    def _take(self, names: list[str], do: Callable[[], T]) -> T:
        """Do something that is so many steps: none, usually."""
        if not names or not self._is_begun:
            return do()
        first = len(self.taken)
        self.taken += names
        number, moment = self._struck or (-1, Moment.BEFORE)
        is_struck = first <= number < len(self.taken)
        if is_struck and moment is Moment.BEFORE:
            self._strike()
        result = do()
        if is_struck and moment is Moment.AFTER:
            self._strike()
        return result

    # -- what it is called -----------------------------------------------------------------------

    def _appended(self, file: FaultyLogFile) -> list[str]:
        partition = file.path.parent.name
        disk = file._disk
        if file.path.suffix != ".log" or partition.rpartition("-")[0] not in self._topics:
            return []
        assert isinstance(disk, ProcessDisk)
        return [f"{disk._process.name} appends to {partition}"]

    def _names(self, stream: Stream, data: bytes) -> tuple[list[str], list[str]]:
        """What it is to send this, and what it is to get it: a step for each frame of interest."""
        source, target = stream.source.local.host, stream.target.local.host
        sent, heard = [], []
        for is_request, api in self._frames(stream, data):
            if self._client not in {source, target} and api not in OF_TRANSACTIONS:
                continue
            if is_request:
                sent.append(f"{source} sends {api.name} to {target}")
                heard.append(f"{target} gets {api.name} of {source}")
            else:
                sent.append(f"{source} answers {api.name} of {target}")
                heard.append(f"{target} is answered {api.name} by {source}")
        return sent, heard

    def _frames(self, stream: Stream, data: bytes) -> Iterator[tuple[bool, ApiKey]]:
        is_request = stream.target.local.port == PORT
        position = 0
        while position < len(data):
            if is_request:
                size_bytes, api_key, _, number = _REQUEST.unpack_from(data, position)
                api = self._asked[stream.source, number] = ApiKey(api_key)
            else:
                size_bytes, number = _ANSWER.unpack_from(data, position)
                api = self._asked.pop((stream.target, number))
            yield is_request, api
            position += _SIZE_BYTES + size_bytes
        assert position == len(data), "a write is whole frames"

    def _arrived(self, stream: Stream, item: Item) -> list[str]:
        """Nothing as long as some of what was written together is missing."""
        if not isinstance(item, bytes):
            return []
        size_bytes, heard = self._under_way[stream].popleft()
        if len(item) < size_bytes:
            self._under_way[stream].appendleft((size_bytes - len(item), heard))
            return []
        return heard


def _is_alive(stream: Stream) -> bool:
    process = stream.source.process
    return process is not None and process.is_alive
