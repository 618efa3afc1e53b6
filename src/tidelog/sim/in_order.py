"""A way on which nothing overtakes anything: what is sent arrives after the latency of its link,
never before what was sent earlier. While the link is cut nothing arrives; all of it does after
healing, as with TCP.
"""

from collections import deque
from typing import Generic, TypeVar

from tidelog.sim.agenda import Agenda
from tidelog.sim.links import Link

Item = TypeVar("Item")


class InOrder(Generic[Item]):
    """See the module docstring. Whoever derives from it says what arriving means."""

    __slots__ = ("_arrival", "_arrives_s", "_is_scheduled", "agenda", "link", "under_way")

    def __init__(self, agenda: Agenda, link: Link) -> None:
        self.agenda = agenda
        self.link = link
        self.under_way: deque[tuple[float, Item]] = deque()
        self._arrives_s = 0.0
        self._is_scheduled = False
        self._arrival = agenda.new_entry(self._arrive)

    def dispatch(self, item: Item, extra_s: float) -> None:
        """Send `item`, which takes `extra_s` longer than the link alone."""
        agenda = self.agenda
        arrives_s = agenda.now_s + self.link.latency_s()
        arrives_s = max(arrives_s, self._arrives_s) + extra_s
        self._arrives_s = arrives_s
        self.under_way.append((arrives_s, item))
        if not self._is_scheduled:
            self._is_scheduled = True
            agenda.put(self._arrival, arrives_s)

    def deliver(self, item: Item) -> None:
        """`item` has arrived."""
        raise NotImplementedError

    def _arrive(self) -> None:
        """The first thing that is under way is due, or was lost since."""
        if self.link.is_cut:
            self.link.when_healed(self._after_healing)
            return
        now_s = self.agenda.now_s
        under_way = self.under_way
        while under_way and under_way[0][0] <= now_s:
            self.deliver(under_way.popleft()[1])
        if under_way:
            self.agenda.put(self._arrival, self.under_way[0][0])
        else:
            self._is_scheduled = False

    def _after_healing(self, after_s: float) -> None:
        self._arrives_s = max(self._arrives_s, self.agenda.now_s + after_s)
        self.agenda.put(self._arrival, self.agenda.now_s + after_s)
