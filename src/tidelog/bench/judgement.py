"""Whether a written conclusion holds for what was measured: rules, without the conclusions.

Each rule looks at figures of one system and says `holds`, `does not hold here` or that it cannot
tell, with one sentence that cites the figures. What differs is decided by the rounds
(`figures.py`); "the same" also covers what the document itself calls the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, pairwise
from typing import Final

from tidelog.bench.figures import Difference, Figures, number_text, pooled
from tidelog.bench.measured import DeathRow, Interruption, ThroughputRow

ACKS_BY_SPEED: Final = (0, 1, -1)
ALIKE: Final = 0.11
"""The document's 8,216.9 and 9,092.4 records a second show "no effect" of min ISR."""
SLIGHT: Final = 0.16
"""The document's 9,738.8 and 8,216.9 records a second are a "slight" difference."""
_NO_DIFFERENCE: Final = "no difference beyond the spread of rounds"
_ONE_ROUND: Final = "one round has no spread, so no difference can be told from chance"


class Holding(StrEnum):
    """What became of a conclusion."""

    HOLDS = "holds"
    DOES_NOT = "does not hold here"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one conclusion, for one system; `why` is a sentence without its first capital letter."""

    holding: Holding
    why: str


def holds_if(condition: bool, why: str) -> Verdict:
    return Verdict(Holding.HOLDS if condition else Holding.DOES_NOT, why)


def undecided(why: str) -> Verdict:
    return Verdict(Holding.UNDECIDED, why)


def all_of(parts: Mapping[str, Verdict]) -> Verdict:
    """Of a conclusion in several parts, each with a name: it holds if all of them do."""
    said = "; ".join(
        f"{name}: {verdict.holding} ({verdict.why})" for name, verdict in parts.items()
    )
    holdings = {verdict.holding for verdict in parts.values()}
    if Holding.DOES_NOT in holdings:
        return Verdict(Holding.DOES_NOT, said)
    return undecided(said) if Holding.UNDECIDED in holdings else Verdict(Holding.HOLDS, said)


# -- throughput ----------------------------------------------------------------------------------


def grouped(
    rows: Iterable[ThroughputRow], subject: str, key: Callable[[ThroughputRow], int]
) -> dict[int, Figures]:
    """The figures of all rows with the same key together, in the order of the rows."""
    groups: dict[int, list[Figures]] = {}
    for row in rows:
        if (figures := row.tps(subject)) is not None:
            groups.setdefault(key(row), []).append(figures)
    return {each: pooled(*figures) for each, figures in groups.items()}


def acks_order(rows: Sequence[ThroughputRow], subject: str) -> Verdict:
    """TPS falls from acks=0 to 1 to -1: somewhere each step does, and nowhere does one rise."""
    by_replicas = {
        replicas: grouped(
            [row for row in rows if row.setup.replicas == replicas],
            subject,
            lambda row: row.setup.acks,
        )
        for replicas in dict.fromkeys(row.setup.replicas for row in rows)
    }
    complete = {
        replicas: [by_acks[acks] for acks in ACKS_BY_SPEED]
        for replicas, by_acks in by_replicas.items()
        if all(acks in by_acks for acks in ACKS_BY_SPEED)
    }
    if not complete:
        return undecided("not all of acks=0, 1 and -1 were measured")
    said = "; ".join(
        f"{_replicas(replicas)}: {_listed(figures)}" for replicas, figures in complete.items()
    )
    steps = [
        [higher.against(lower) for higher, lower in pairwise(figures)]
        for figures in complete.values()
    ]
    if any(Difference.UNKNOWN in each for each in steps):
        return undecided(f"acks=0, 1, -1 at {said}; {_ONE_ROUND}")
    is_ordered = all(Difference.LARGER in each for each in zip(*steps, strict=True))
    is_reversed = any(Difference.SMALLER in each for each in steps)
    unclear = [
        f"acks={higher} and {lower} at {_replicas(replicas)}"
        for replicas, each in zip(complete, steps, strict=True)
        for (higher, lower), step in zip(pairwise(ACKS_BY_SPEED), each, strict=True)
        if step is Difference.NONE
    ]
    noted = f"; {_NO_DIFFERENCE} between {', '.join(unclear)}" if unclear else ""
    return holds_if(is_ordered and not is_reversed, f"acks=0, 1, -1 at {said} records/s{noted}")


def falls_with_replicas(rows: Sequence[ThroughputRow], subject: str) -> Verdict:
    """The most replicas give fewer records a second than the fewest, and no step gives more."""
    groups = grouped(rows, subject, lambda row: row.setup.replicas)
    if len(groups) < 2:
        return undecided("fewer than two numbers of replicas were measured")
    figures = list(groups.values())
    said = f"{_keys(groups)} replicas: {_listed(figures)} records/s"
    whole = figures[-1].against(figures[0])
    if whole is Difference.UNKNOWN:
        return undecided(f"{said}; {_ONE_ROUND}")
    rises = any(after.against(before) is Difference.LARGER for before, after in pairwise(figures))
    noted = f"; {_NO_DIFFERENCE} from first to last" if whole is Difference.NONE else ""
    return holds_if(whole is Difference.SMALLER and not rises, said + noted)


def falls_with_replicas_whatever_acks(rows: Sequence[ThroughputRow], subject: str) -> Verdict:
    """The same at each acks on its own; all of them have to."""
    found = {
        acks: falls_with_replicas([row for row in rows if row.setup.acks == acks], subject)
        for acks in ACKS_BY_SPEED
    }
    said = "; ".join(f"acks={acks}: {verdict.why}" for acks, verdict in found.items())
    holdings = {verdict.holding for verdict in found.values()}
    if Holding.UNDECIDED in holdings:
        return undecided(said)
    return holds_if(holdings == {Holding.HOLDS}, said)


def falls_slightly_with_replicas(rows: Sequence[ThroughputRow], subject: str) -> Verdict:
    """Fewer records a second with more replicas, but not by much."""
    groups = grouped(rows, subject, lambda row: row.setup.replicas)
    verdict = falls_with_replicas(rows, subject)
    if verdict.holding is Holding.UNDECIDED:
        return verdict
    first, *_, last = (figures.median for figures in groups.values())
    loss = 1 - last / first
    is_slight = loss <= SLIGHT
    said = f"{verdict.why}, which is {abs(loss):.0%} {'less' if loss > 0 else 'more'}"
    return holds_if(verdict.holding is Holding.HOLDS and is_slight, said)


def alike(
    rows: Sequence[ThroughputRow],
    subject: str,
    *,
    within: Callable[[ThroughputRow], object],
    named: Callable[[ThroughputRow], str],
) -> Verdict:
    """Rows that are the same but for one parameter give the same records a second.

    `within` says which rows belong together, `named` what tells them apart.
    """
    groups: dict[object, list[tuple[str, Figures]]] = {}
    for row in rows:
        if (figures := row.tps(subject)) is not None:
            groups.setdefault(within(row), []).append((named(row), figures))
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return undecided("no two rows differ in it alone")
    said = f"{'; '.join(map(_named_figures, several))} records/s"
    if not all(figures.has_spread for group in several for _, figures in group):
        return undecided(f"{said}; {_ONE_ROUND}")
    apart = [pair for group in several for pair in combinations(group, 2) if _differ(*pair)]
    if not apart:
        return holds_if(True, f"{said}; {_NO_DIFFERENCE}")
    too_far = [f"{one} and {other}" for (one, ours), (other, theirs) in apart if _far(ours, theirs)]
    if not too_far:
        return holds_if(True, f"{said}; nowhere more than {ALIKE:.0%} apart")
    return holds_if(False, f"{said}; {', '.join(too_far)} differ")


def grows_with_partitions(rows: Sequence[ThroughputRow], subject: str) -> Verdict:
    return _of_partitions(rows, subject, _grows)


def grows_out_of_proportion(rows: Sequence[ThroughputRow], subject: str) -> Verdict:
    return _of_partitions(rows, subject, _grows_less)


def falls_beyond_a_point(rows: Sequence[ThroughputRow], subject: str) -> Verdict:
    return _of_partitions(rows, subject, _falls)


def _of_partitions(
    rows: Sequence[ThroughputRow],
    subject: str,
    decide: Callable[[Mapping[int, Figures]], Verdict],
) -> Verdict:
    groups = grouped(rows, subject, lambda row: row.setup.partitions)
    if len(groups) < 3:
        return undecided("fewer than three numbers of partitions were measured")
    if not all(figures.has_spread for figures in groups.values()):
        return undecided(f"{_partitions_said(groups)}; {_ONE_ROUND}")
    return decide(groups)


def _grows(groups: Mapping[int, Figures]) -> Verdict:
    best, first = _best(groups), next(iter(groups))
    if best == first:
        return holds_if(False, f"{_partitions_said(groups)}: one partition is the fastest")
    is_more = groups[best].against(groups[first]) is Difference.LARGER
    noted = "" if is_more else f"; {_NO_DIFFERENCE} between {first} and {best}"
    return holds_if(is_more, _partitions_said(groups) + noted)


def _grows_less(groups: Mapping[int, Figures]) -> Verdict:
    best, first = _best(groups), next(iter(groups))
    if best == first:
        return holds_if(True, "it does not grow at all")
    times = groups[best].median / groups[first].median
    why = f"{best} partitions give {number_text(times)} times as much as {first}"
    return holds_if(times < best / first, why)


def _falls(groups: Mapping[int, Figures]) -> Verdict:
    best = _best(groups)
    last = [*groups][-1]
    if best == last:
        return holds_if(False, f"{last} partitions, the most measured, are the fastest")
    fallen = [
        number
        for number, figures in groups.items()
        if number > best and figures.against(groups[best]) is Difference.SMALLER
    ]
    said = f"the most is {number_text(groups[best].median)} records/s with {_partitions(best)}"
    if not fallen:
        return holds_if(False, f"{said}; {_NO_DIFFERENCE} to more of them")
    lowest = groups[fallen[-1]].median
    loss = 1 - lowest / groups[best].median
    said += f", {fallen[-1]} give {number_text(lowest)}, {loss:.0%} less"
    return holds_if(loss <= SLIGHT, said if loss <= SLIGHT else f"{said}: more than a little")


def _best(groups: Mapping[int, Figures]) -> int:
    return max(groups, key=lambda number: groups[number].median)


def _differ(one: tuple[str, Figures], other: tuple[str, Figures]) -> bool:
    return one[1].against(other[1]) is not Difference.NONE


def _far(ours: Figures, theirs: Figures) -> bool:
    return abs(ours.median - theirs.median) / max(ours.median, theirs.median) > ALIKE


# -- brokers that die ----------------------------------------------------------------------------


def goes_on(rows: Sequence[DeathRow], subject: str) -> Verdict:
    """Every partition takes records again."""
    rounds = _rounds(rows, subject)
    if not rounds:
        return undecided("not measured")
    whole = [each.whole_after_s for each in rounds if each.whole_after_s is not None]
    if len(whole) < len(rounds):
        return holds_if(False, f"in {len(rounds) - len(whole)} of {len(rounds)} rounds it did not")
    longest, shortest = max(whole), min(whole)
    return holds_if(
        True,
        f"every partition took records again {number_text(shortest)} to {number_text(longest)} s "
        f"after the kill, in {len(rounds)} of {len(rounds)} rounds",
    )


def slows_down(rows: Sequence[DeathRow], subject: str) -> Verdict:
    """Fewer records a second with the brokers that are left than with all."""
    rounds = [each for each in _rounds(rows, subject) if each.tps_after is not None]
    if not rounds:
        return undecided("no round has gone on after the kill")
    before = Figures(tuple(each.tps_before for each in rounds))
    after = Figures(tuple(each.tps_after or 0.0 for each in rounds))
    said = (
        f"{number_text(before.median)} records/s before and {number_text(after.median)} after the "
        "kill"
    )
    difference = after.against(before)
    if difference is Difference.UNKNOWN:
        return undecided(f"{said}; {_ONE_ROUND}")
    noted = f"; {_NO_DIFFERENCE}" if difference is Difference.NONE else ""
    return holds_if(difference is Difference.SMALLER, said + noted)


def waits_for_brokers(rows: Sequence[DeathRow], subject: str) -> Verdict:
    """Nothing is acknowledged below min ISR; with brokers back it goes on, by retries alone."""
    rounds = _rounds(rows, subject)
    if not rounds:
        return undecided("not measured")
    early = sum(each.acknowledged_while_down for each in rounds)
    stuck = sum(each.whole_after_s is None for each in rounds)
    failed = sum(sum(each.failures.values()) for each in rounds)
    retried = sum(sum(each.retried.values()) for each in rounds)
    said = (
        f"{early:,} records were acknowledged while one broker of four was left, {retried:,} "
        f"batches were sent again, {failed:,} records failed"
    )
    if stuck:
        return holds_if(False, f"{said}; {stuck} of {len(rounds)} rounds did not go on")
    behind = [
        each.whole_after_s - each.restarted_after_s
        for each in rounds
        if each.whole_after_s is not None and each.restarted_after_s is not None
    ]
    said += f"; all partitions took records {_behind_text(max(behind, default=0.0))}"
    return holds_if(not early and not failed, said)


def duplicates_by_retries(rows: Sequence[DeathRow], subject: str) -> Verdict:
    """With retries and without idempotence, records are on disk more than once."""
    plain = _rounds([row for row in rows if not row.case.is_idempotent], subject)
    idempotent = _rounds([row for row in rows if row.case.is_idempotent], subject)
    if not plain:
        return undecided("not measured")
    doubled = sum(each.disk.duplicated for each in plain)
    said = f"{doubled:,} copies too many without idempotence"
    if idempotent:
        said += f", {sum(each.disk.duplicated for each in idempotent):,} with it"
    return holds_if(doubled > 0, said)


def acknowledged_are_stored(rows: Sequence[DeathRow], subject: str) -> Verdict:
    """Everything that was acknowledged is in the logs."""
    rounds = _rounds(rows, subject)
    if not rounds:
        return undecided("not measured")
    lost = sum(each.disk.lost for each in rounds)
    acknowledged = sum(each.disk.acknowledged for each in rounds)
    return holds_if(not lost, f"of {acknowledged:,} acknowledged records {lost:,} are missing")


def failed_are_partly_stored(rows: Sequence[DeathRow], subject: str) -> Verdict:
    """Of records that failed, some are in the logs all the same."""
    rounds = _rounds(rows, subject)
    if not rounds:
        return undecided("not measured")
    failed = sum(each.disk.failed for each in rounds)
    stored = sum(each.disk.failed_but_stored for each in rounds)
    said = f"of {failed:,} records that failed {stored:,} are in the logs"
    return holds_if(0 < stored <= failed, said) if failed else undecided(said)


def _rounds(rows: Sequence[DeathRow], subject: str) -> list[Interruption]:
    return [each for row in rows for each in row.rounds.of(subject)]


def _behind_text(seconds: float) -> str:
    if seconds < 0:
        return f"{number_text(-seconds)} s before the first restarted broker had reported ready"
    return f"at most {number_text(seconds)} s after the first broker was back"


# -- words ---------------------------------------------------------------------------------------


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _keys(groups: Mapping[int, Figures]) -> str:
    return ", ".join(map(str, groups))


def _listed(figures: Iterable[Figures]) -> str:
    return " / ".join(number_text(each.median) for each in figures)


def _named_figures(group: Iterable[tuple[str, Figures]]) -> str:
    return ", ".join(f"{name} {number_text(figures.median)}" for name, figures in group)


def _partitions_said(groups: Mapping[int, Figures]) -> str:
    return f"{_keys(groups)} partitions: {_listed(groups.values())} records/s"
