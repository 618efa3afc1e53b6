"""Which links between parties are cut, and which are slow. Decides nothing about bytes.

    cut(a, b)        nothing passes between the two until they are healed
    slow(a, b, ms)   everything takes so much longer, each way
    heal(a, b)       as if nothing had been done to the two; heal_all() to all

Invariants:

    I1  A link has no direction: `link(a, b) == link(b, a)`.
    I2  Nobody has a link to itself: what a process says to itself passes through no network.
    I3  What is not mentioned is whole; `changed` names no link that is.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelog.lab.network.parties import Party

DELAY_MAX_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Link:
    """What is wrong between two parties. A link that is cut remembers how slow it was."""

    is_cut: bool
    delay_ms: int


WHOLE: Final = Link(is_cut=False, delay_ms=0)


class Links:
    """All links of one network."""

    __slots__ = ("_changed",)

    def __init__(self) -> None:
        self._changed: dict[frozenset[Party], Link] = {}

    @property
    def changed(self) -> Mapping[frozenset[Party], Link]:
        """The links that are cut or slow, by their two ends."""
        return self._changed

    def link(self, a: Party, b: Party) -> Link:
        """What is between the two; a party has a whole link to itself."""
        return self._changed.get(frozenset((a, b)), WHOLE)

    def cut(self, a: Party, b: Party) -> None:
        self._put(a, b, replace(self.link(a, b), is_cut=True))

    def slow(self, a: Party, b: Party, *, delay_ms: int) -> None:
        """Make the link so slow, whatever it was before; no delay makes it as fast as any."""
        assert 0 <= delay_ms <= DELAY_MAX_MS
        self._put(a, b, replace(self.link(a, b), delay_ms=delay_ms))

    def heal(self, a: Party, b: Party) -> None:
        self._put(a, b, WHOLE)

    def heal_all(self) -> None:
        self._changed.clear()

    def cut_between(self, these: Collection[Party], those: Collection[Party]) -> None:
        """Cut every link from one group to the other; within a group nothing changes."""
        for a, b in pairs_between(these, those):
            self.cut(a, b)

    def slow_between(
        self, these: Collection[Party], those: Collection[Party], *, delay_ms: int
    ) -> None:
        for a, b in pairs_between(these, those):
            self.slow(a, b, delay_ms=delay_ms)

    def heal_between(self, these: Collection[Party], those: Collection[Party]) -> None:
        for a, b in pairs_between(these, those):
            self.heal(a, b)

    def _put(self, a: Party, b: Party, link: Link) -> None:
        assert a != b  # I2
        ends = frozenset((a, b))
        if link == WHOLE:
            self._changed.pop(ends, None)  # I3
        else:
            self._changed[ends] = link
        assert self.link(b, a) == link  # I1


def pairs_between(
    these: Collection[Party], those: Collection[Party]
) -> Iterator[tuple[Party, Party]]:
    """Every pair with one of each group. Nobody may be in both."""
    assert set(these).isdisjoint(those)
    return ((a, b) for a in these for b in those)
