"""What a network says of itself: who it leads to, what is cut, what was carried."""

from dataclasses import dataclass

from tidelog.lab.network.parties import Party
from tidelog.lab.network.routes import Route
from tidelog.lab.processes import ProcessIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """A link that is cut or slow; `a` comes before `b` in the alphabet."""

    a: Party
    b: Party
    is_cut: bool
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """Connections that `caller` made to `target`, and the bytes of those and of earlier ones.

    Sent is what went from the caller to the target. Waiting are those whose link is cut, or that
    the target has not accepted yet.
    """

    caller: Party
    target: Party
    open_count: int
    waiting_count: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStatus:
    """One network, at one moment. `refused_count` came when too many connections were open."""

    process: ProcessIdentity
    routes: tuple[Route, ...]
    links: tuple[LinkStatus, ...]
    pairs: tuple[PairStatus, ...]
    refused_count: int
