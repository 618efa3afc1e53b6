"""A cluster's network, cut between parties that a test names, and healed again.

A party is a broker, by its number, or all clients. What the brokers keep in their coordinator's
file passes through no network: a broker that is cut off is still alive to the others.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Literal

from tidelog.lab.errors import LabError
from tidelog.lab.network import parties
from tidelog.lab.network.network import LabNetwork

CLIENTS: Final = "clients"

Party = int | Literal["clients"]
Parties = Party | Iterable[Party]


class NetworkPartition(AbstractContextManager["NetworkPartition"]):
    """Links that are cut. Healed at the end of a `with`, or by `heal`, or by `heal_network`."""

    def __init__(self, heal: Callable[[], None]) -> None:
        self._heal = heal

    def heal(self) -> None:
        """Let what was held up go on, in order. Twice is as good as once."""
        self._heal()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        self.heal()


def cut(
    network: LabNetwork, broker_ids: Sequence[int], these: Parties, those: Parties | None
) -> NetworkPartition:
    """Let nothing pass between the two groups; without a second one, everybody else is it."""
    first = _named(these)
    everybody: list[Party] = [*broker_ids, CLIENTS]
    second = [each for each in everybody if each not in first] if those is None else _named(those)
    for each in (*first, *second):
        if each not in everybody:
            raise LabError(f"there is no {each!r} in this network, only {everybody}")
    if both := [each for each in first if each in second]:
        raise LabError(f"nobody is cut off from itself: {both} is on both sides")
    one, other = ([_party(each) for each in group] for group in (first, second))
    network.cut_between(one, other)
    return NetworkPartition(lambda: network.heal_between(one, other))


def _named(group: Parties) -> list[Party]:
    if isinstance(group, int):
        return [group]
    # A string is a group of its letters to Python, and the name of a party here.
    return [CLIENTS] if group == CLIENTS else list(group)


def _party(party: Party) -> parties.Party:
    return parties.broker_party(party) if isinstance(party, int) else parties.CLIENTS
