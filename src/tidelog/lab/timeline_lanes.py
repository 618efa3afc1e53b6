"""A run of faults as lanes to be drawn: what was seen of brokers and partitions, and what was done.

Times count from when the load began. A broker was what faults made it, and down where its process
was not there; a partition is as most brokers described it, look by look, so that what came and went
between two looks is not in the picture.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeVar

from tidelog.client.values import PartitionDescription
from tidelog.lab.fault_kinds import Deed
from tidelog.lab.faults import Outcome
from tidelog.lab.injector import BegunFault
from tidelog.lab.network.parties import broker_party
from tidelog.lab.observations import INTERVAL_S, Moment
from tidelog.lab.timeline_picture import Lane, Mark, Picture, Rate, Span

LEADER_COLOURS: Final = 9
# Nobody sees more steps than this.
_RATES_MAX: Final = 600
_RATE_S_MIN: Final = 0.5

KINDS: Final = {
    Deed.KILL: "down",
    Deed.STOP: "down",
    Deed.TEAR: "damage",
    Deed.CORRUPT: "damage",
    Deed.PAUSE: "pause",
    Deed.CUT: "cut",
    Deed.SLOW: "slow",
    Deed.EXPIRE: "expire",
    Deed.FILL_DISK: "disk",
}
_WORDS: Final = {
    Deed.KILL: "killed",
    Deed.STOP: "stopped",
    Deed.TEAR: "torn",
    Deed.CORRUPT: "corrupt",
    Deed.PAUSE: "paused",
    Deed.CUT: "cut",
    Deed.SLOW: "slow",
    Deed.EXPIRE: "expired",
    Deed.FILL_DISK: "disk full",
}

T = TypeVar("T")


def picture_of(outcome: Outcome) -> Picture:
    """All that is known of the run, from the beginning of the load on."""
    return _Lanes(outcome).picture()


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Looks in a row that saw the same, and until when that held."""

    start: float
    end: float


class _Lanes:
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._zero = outcome.loaded_at
        self._end = _last_time(outcome)
        self._looks = _looks(outcome.moments)

    def picture(self) -> Picture:
        ids = self._broker_ids()
        servers = sorted(
            {name for each in self._outcome.injected for name in each.names}
            - {broker_party(broker_id) for broker_id in ids}
        )
        return Picture(
            length_s=self._end - self._zero,
            marks=[self._mark(each) for each in self._outcome.injected],
            groups=[
                [*(self._broker(each) for each in ids), *(self._server(each) for each in servers)],
                [self._partition(each) for each in self._partition_numbers()],
            ],
            rates=rates_of(self._outcome.moments, zero=self._zero),
            rates_name="records/s",
        )

    def _broker_ids(self) -> list[int]:
        return sorted({each for moment in self._outcome.moments for each in moment.broker_ids})

    def _partition_numbers(self) -> list[int]:
        return sorted(
            {each.partition for moment in self._outcome.moments for each in moment.partitions}
        )

    # -- lanes -----------------------------------------------------------------------------------

    def _broker(self, broker_id: int) -> Lane:
        name = broker_party(broker_id)
        return Lane(
            name=name,
            kind=leader_kind(broker_id),
            spans=[*self._lives(broker_id), *self._harm(name)],
            above=[],
            below=self._runs(
                lambda moment: moment.controller_id == broker_id or None,
                lambda _, where: self._span(where, "controller", f"{name} is the controller"),
            ),
        )

    def _server(self, name: str) -> Lane:
        whole = _Stretch(self._zero, self._end)
        up = self._span(whole, "up", f"ZooKeeper's {name}")
        return Lane(name=name, kind="", spans=[up, *self._harm(name)], above=[], below=[])

    def _partition(self, number: int) -> Lane:
        name = f"partition {number}"
        return Lane(
            name=name,
            kind="",
            spans=_labelled_once(
                self._runs(
                    lambda moment: _described(moment, number),
                    lambda seen, where: self._led(name, seen, where),
                )
            ),
            above=[
                self._span(_Stretch(gap.began_at, gap.ended_at), "none", f"{name}: no record taken")
                for gap in self._outcome.gaps
                if gap.partition == number
            ],
            below=self._runs(
                lambda moment: _missing(_described(moment, number)),
                lambda missing, where: self._span(
                    where, missing[0], f"{name}: out of sync {_listed(missing[1])}"
                ),
            ),
        )

    def _lives(self, broker_id: int) -> list[Span]:
        name = broker_party(broker_id)
        return self._runs(
            lambda moment: broker_id in moment.alive if broker_id in moment.broker_ids else None,
            lambda lives, where: self._span(
                where, "up" if lives else "down", f"{name}: {'up' if lives else 'no process'}"
            ),
        )

    def _harm(self, name: str) -> list[Span]:
        return [
            self._span(
                _Stretch(each.at, self._end if each.ended_at is None else each.ended_at),
                KINDS[each.fault.deed],
                f"{name}: fault {each.fault.number}, {each.as_line()}",
                label=_WORDS[each.fault.deed],
            )
            for each in self._outcome.injected
            if name in each.names
        ]

    def _led(self, name: str, seen: PartitionDescription, where: _Stretch) -> Span:
        isr = f"in sync {_listed(seen.isr)}"
        if seen.leader is None:
            return self._span(where, "offline", f"{name}: nobody leads, {isr}", label="offline")
        who = f"led by broker {seen.leader}"
        kind = leader_kind(seen.leader)
        return self._span(where, kind, f"{name}: {who}, {isr}", label=str(seen.leader))

    def _mark(self, begun: BegunFault) -> Mark:
        return Mark(
            at_s=begun.at - self._zero,
            kind=KINDS[begun.fault.deed],
            label=str(begun.fault.number),
            title=f"fault {begun.fault.number} at {begun.at - self._zero:.1f} s: {begun.as_line()}",
        )

    # -- pieces ----------------------------------------------------------------------------------

    def _runs(
        self, see: Callable[[Moment], T | None], drawn: Callable[[T, _Stretch], Span]
    ) -> list[Span]:
        """A span for each row of looks that saw the same; None is nothing to draw."""
        spans = []
        for seen, group in groupby(self._looks, key=lambda look: see(look[0])):
            if seen is not None:
                stretches = [stretch for _, stretch in group]
                spans.append(drawn(seen, _Stretch(stretches[0].start, stretches[-1].end)))
        return spans

    def _span(self, where: _Stretch, kind: str, title: str, *, label: str = "") -> Span:
        start_s, end_s = where.start - self._zero, where.end - self._zero
        return Span(
            start_s=start_s,
            end_s=end_s,
            kind=kind,
            title=f"{title}; {start_s:.1f} s to {end_s:.1f} s",
            label=label,
        )


def rates_of(moments: Sequence[Moment], *, zero: float) -> list[Rate]:
    """Acknowledged records a second, in steps of half a second, or longer ones in a long run."""
    if len(moments) < 2:
        return []
    first, last = moments[0].at, moments[-1].at
    step = max(_RATE_S_MIN, (last - first) / _RATES_MAX)
    edges = [first + step * index for index in range(int((last - first) / step) + 1)]
    counts = list(_counts_at(moments, edges))
    return [
        Rate(start - zero, start + step - zero, (after - before) / step)
        for start, before, after in zip(edges, counts, counts[1:], strict=False)
    ]


def leader_kind(broker_id: int) -> str:
    """The class of a broker's colour."""
    return f"l{(broker_id - 1) % LEADER_COLOURS + 1}"


def _counts_at(moments: Sequence[Moment], times: Iterable[float]) -> Iterator[float]:
    """What was acknowledged at each of these times, which are in order, between looks as well."""
    index = 0
    for time in times:
        while index + 2 < len(moments) and moments[index + 1].at <= time:
            index += 1
        before, after = moments[index], moments[index + 1]
        share = (time - before.at) / (after.at - before.at) if after.at > before.at else 1.0
        yield before.acknowledged + share * (after.acknowledged - before.acknowledged)


def _looks(moments: Sequence[Moment]) -> list[tuple[Moment, _Stretch]]:
    """Each moment, and for how long nobody looked again."""
    ends = [*(moment.at for moment in moments[1:])]
    if moments:
        ends.append(moments[-1].at + INTERVAL_S)
    return [(each, _Stretch(each.at, end)) for each, end in zip(moments, ends, strict=True)]


def _last_time(outcome: Outcome) -> float:
    times = [moment.at + INTERVAL_S for moment in outcome.moments]
    times += [each.ended_at or each.at for each in outcome.injected]
    return max(times, default=outcome.loaded_at)


def _described(moment: Moment, number: int) -> PartitionDescription | None:
    return next((each for each in moment.partitions if each.partition == number), None)


def _missing(seen: PartitionDescription | None) -> tuple[str, tuple[int, ...]] | None:
    """How bad it is, and who is not in sync; None if all are."""
    if seen is None:
        return None
    missing = tuple(each for each in seen.replicas if each not in seen.isr)
    if not missing:
        return None
    return "alone" if len(seen.isr) <= 1 else "lacking", missing


def _labelled_once(spans: Sequence[Span]) -> list[Span]:
    """With a label where it is another than before."""
    before = ["", *(span.label for span in spans)]
    return [
        replace(span, label="") if span.label == label else span
        for span, label in zip(spans, before, strict=False)
    ]


def _listed(ids: Iterable[int]) -> str:
    return ",".join(map(str, sorted(ids))) or "nobody"
