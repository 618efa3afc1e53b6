"""Regular expressions that members of one group subscribe with, and the topics they stand for.

X1  An expression that nobody in the group had before is resolved at once.
X2  Topics come and go: all expressions of a group are resolved again when there are others than
    at the last time, but not more often than every REFRESH_MIN_MS, and in any case once in
    `group.consumer.regex.refresh.interval.ms`. All together, so that members are moved once.
    A time that is yet to come was written by somebody whose clock was wrong, and is long ago.
X3  What an expression stands for is written down: whoever leads after us assigns the same.
X4  One that has come to stand for more topics than a record holds, or to take too long, stands
    for what it did before.
X5  Nobody waits for longer than the visits of one expression take (`patterns.py`), however many
    there are: what is left is resolved with the next heartbeat, and the longest ago first.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from tidelog.base.errors import RequestRefused
from tidelog.core.groups.consumer import patterns
from tidelog.core.groups.consumer.members import ConsumerMembers
from tidelog.core.groups.topics import Topics
from tidelog.records.consumer_groups import ResolvedExpression

REFRESH_MIN_MS: Final = 10_000
FOR_EVER_MS: Final = 1 << 63


def due(
    members: ConsumerMembers, topics: Topics, *, now_ms: int, refresh_interval_ms: int
) -> frozenset[str]:
    """The expressions that are to be resolved now. X1, X2"""
    wanted = frozenset(members.subscriber_counts)
    unresolved = wanted - members.expressions.keys()
    if unresolved or not wanted:
        return unresolved

    def is_old(expression: str, most_ms: int) -> bool:
        return not 0 <= now_ms - members.expressions[expression].time_ms <= most_ms

    outdated = frozenset(
        expression
        for expression in wanted
        if members.expressions[expression].version != topics.version
        or is_old(expression, refresh_interval_ms)
    )
    is_due = any(is_old(expression, REFRESH_MIN_MS) for expression in outdated)
    return outdated if is_due else frozenset()


def quiet_until_ms(members: ConsumerMembers, topics: Topics, *, refresh_interval_ms: int) -> int:
    """Until when none is due, if neither topics nor expressions change and none is due now. X2"""
    longest_ms = max(refresh_interval_ms, REFRESH_MIN_MS)
    return min(
        (
            known.time_ms + (longest_ms if known.version == topics.version else REFRESH_MIN_MS) + 1
            for known in map(members.expressions.__getitem__, members.subscriber_counts)
        ),
        default=FOR_EVER_MS,
    )


def require_matchable(expression: str, topics: Topics) -> None:
    """Raises RequestRefused if `expression` is none, or takes too long."""
    patterns.Pattern(expression).matching(topics.by_name)


def resolve(
    expressions: Iterable[str],
    members: ConsumerMembers,
    topics: Topics,
    *,
    now_ms: int,
    record_max_bytes: int,
) -> dict[str, ResolvedExpression]:
    """What each stands for now, as far as there is time for it. X4, X5"""
    resolved: dict[str, ResolvedExpression] = {}
    left = patterns.VISITS_MAX
    for expression in sorted(expressions, key=partial(_age_order, members)):
        if left <= 0:
            break
        found, visits = _matching(expression, topics, record_max_bytes)
        left -= visits
        if found is None:
            known = members.expressions.get(expression)
            found = frozenset() if known is None else known.topics
        resolved[expression] = ResolvedExpression(found, topics.version, now_ms)
    return resolved


def _age_order(members: ConsumerMembers, expression: str) -> tuple[int, str]:
    known = members.expressions.get(expression)
    return (0 if known is None else known.time_ms), expression


def _matching(
    expression: str, topics: Topics, record_max_bytes: int
) -> tuple[frozenset[str] | None, int]:
    """The topics, and what it took; None if they are too many, or it takes too long."""
    try:
        pattern = patterns.Pattern(expression)
        found = pattern.matching(topics.by_name)
    except RequestRefused:
        return None, patterns.VISITS_MAX
    size_bytes = sum(len(topic.encode()) + 3 for topic in found)
    return found if size_bytes <= record_max_bytes // 2 else None, pattern.visits
