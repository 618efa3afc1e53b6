"""What a simulated coordinator and its clients say to each other.

A session lives longer than a connection. Each connection begins with `Hello`; a client that doubts
its connection begins another one, with a larger number, and what still comes over the older one
after that is not heard. Until then it is: a write whose caller was told that nobody knows whether
it happened may still happen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import TidelogError
from tidelog.coordination.port import Node
from tidelog.sim.in_order import InOrder
from tidelog.sim.links import Link

if TYPE_CHECKING:
    from tidelog.sim.coordinator import SimulatedCoordinatorService
    from tidelog.sim.coordinator_service_session import ServiceSession

State = Node | list[str] | None
Action = Callable[["ServiceSession"], object]


@dataclass(frozen=True, slots=True)
class Hello:
    """`session_id` None: begin a session."""

    number: int
    session_id: int | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Do something on the tree, for this session."""

    number: int
    action: Action
    is_write: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """To `Hello` the id of the session; to `Ask` what the action returned or raised."""

    number: int
    result: object
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A watched node or list of children has changed."""

    watch_number: int
    state: State


@dataclass(frozen=True, slots=True)
class Lost:
    """The session is no more."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The connection is no more."""


ToService = Hello | Ask
ToClient = Answer | Changed | Lost | Broken


class Connection:
    """Both directions between a client and the service."""

    def __init__(
        self,
        service: "SimulatedCoordinatorService",
        *,
        number: int,
        host: str,
        hear: "Callable[[Connection, ToClient], None]",
    ) -> None:
        """`hear` is called outside of every process."""
        self.number = number
        self.host = host
        self.session: ServiceSession | None = None
        self.is_broken = False
        self.service = service
        self.hear = hear
        self._to_service = _ToService(self, service.link_from(host))
        self._to_client = _ToClient(self, service.link_to(host))

    def ask(self, message: ToService) -> None:
        """From the client to the service."""
        self._to_service.dispatch(message, self.service.delay_s())

    def tell(self, message: ToClient) -> None:
        """From the service to the client."""
        if not self.is_broken:
            self._to_client.dispatch(message, self.service.delay_s())

    def break_off(self) -> None:
        """Lose everything that is under way; the client hears only of that."""
        if not self.is_broken:
            self._to_client.under_way.clear()
            self.tell(Broken())
            self.is_broken = True


class _ToService(InOrder[ToService]):
    __slots__ = ("_connection",)

    def __init__(self, connection: Connection, link: Link) -> None:
        super().__init__(connection.service.agenda, link)
        self._connection = connection

    def deliver(self, item: ToService) -> None:
        connection = self._connection
        if not connection.is_broken:
            connection.service.on_message(connection, item)


class _ToClient(InOrder[ToClient]):
    __slots__ = ("_connection",)

    def __init__(self, connection: Connection, link: Link) -> None:
        super().__init__(connection.service.agenda, link)
        self._connection = connection

    def deliver(self, item: ToClient) -> None:
        self._connection.service.on_news(self._connection, item)
        self._connection.hear(self._connection, item)
