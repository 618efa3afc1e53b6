"""When a ledger's records were acknowledged, and how long there was nothing of the kind (B3, O6).

A gap is seen as an application sees it: the time between two acknowledgements of one partition,
while there was something to acknowledge. The first one counts from when the producer began.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_PER_BAR = "▁▂▃▄▅▆▇█"
_NOTHING = " "


class LedgerTimes(NamedTuple):
    """What a ledger says of one topic's records, in milliseconds since 1970."""

    sent_count: int
    failed_count: int
    first_sent_ms: int
    acknowledged_ms: Mapping[int, Sequence[int]]
    """By partition, in order."""

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged_ms.values()))


class Gap(NamedTuple):
    partition: int
    begin_ms: int
    length_ms: int


def read_times(ledger: Path) -> LedgerTimes:
    """Of a ledger that may still be written: what is no whole line is passed over."""
    sent_ms: list[int] = []
    failed_count = 0
    acknowledged: dict[int, list[int]] = {}
    with ledger.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            if "offset" in entry:
                acknowledged.setdefault(entry["partition"], []).append(entry["time"])
            elif "error" in entry:
                failed_count += 1
            else:
                sent_ms.append(entry["time"])
    return LedgerTimes(
        sent_count=len(sent_ms),
        failed_count=failed_count,
        first_sent_ms=min(sent_ms, default=0),
        acknowledged_ms={key: sorted(acknowledged[key]) for key in sorted(acknowledged)},
    )


def longest_gap(times: LedgerTimes, partition: int, *, since_ms: int = 0) -> Gap:
    """The longest wait of that partition for an acknowledgement, of those that ended since then."""
    moments = [times.first_sent_ms, *times.acknowledged_ms[partition]]
    waits = [
        Gap(partition, before, after - before)
        for before, after in pairwise(moments)
        if after >= since_ms
    ]
    return max(waits, key=lambda gap: gap.length_ms, default=Gap(partition, since_ms, 0))


def bars(moments: Sequence[int], *, begin_ms: int, end_ms: int, width: int) -> str:
    """How many of the moments are in each of `width` equal parts of the time, as a line of bars."""
    counts = [0] * width
    length = max(end_ms - begin_ms, 1)
    for moment in moments:
        if begin_ms <= moment <= end_ms:
            counts[min((moment - begin_ms) * width // length, width - 1)] += 1
    most = max(counts) or 1
    return "".join(
        _PER_BAR[(count * len(_PER_BAR) - 1) // most] if count else _NOTHING for count in counts
    )
