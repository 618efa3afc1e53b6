"""Regular expressions that members of one group subscribe with, and the topics they stand for.

X1  An expression that nobody in the group had before is resolved at once.
X2  Topics come and go: all expressions of a group are resolved again when there are others than
    at the last time, but not more often than every REFRESH_MIN_MS, and in any case once in
    `group.consumer.regex.refresh.interval.ms`. All together, so that members are moved once.
X3  What an expression stands for is written down: whoever leads after us assigns the same.
"""

from collections.abc import Iterable
from typing import Final

from tidelog.base.errors import RequestRefused
from tidelog.core.groups.consumer.members import ConsumerMembers
from tidelog.core.groups.consumer.patterns import Pattern
from tidelog.core.groups.topics import Topics
from tidelog.records.consumer_groups import ResolvedExpression

REFRESH_MIN_MS: Final = 10_000


def due(
    members: ConsumerMembers, topics: Topics, *, now_ms: int, refresh_interval_ms: int
) -> frozenset[str]:
    """The expressions that are to be resolved now. X1, X2"""
    wanted = frozenset(members.subscriber_counts)
    unresolved = wanted - members.expressions.keys()
    if unresolved or not wanted:
        return unresolved
    resolved = [members.expressions[expression] for expression in wanted]
    age_ms = now_ms - min(found.time_ms for found in resolved)
    is_outdated = any(found.version != topics.version for found in resolved)
    is_due = age_ms > refresh_interval_ms or (is_outdated and age_ms > REFRESH_MIN_MS)
    return wanted if is_due else frozenset()


def require_matchable(expression: str, topics: Topics) -> None:
    """Raises RequestRefused if `expression` is none, or takes too long."""
    Pattern(expression).matching(topics.by_name)


def resolve(
    expressions: Iterable[str],
    members: ConsumerMembers,
    topics: Topics,
    *,
    now_ms: int,
    record_max_bytes: int,
) -> dict[str, ResolvedExpression]:
    """What each stands for now. X4"""
    resolved = {}
    for expression in sorted(expressions):
        found = _matching(expression, topics, record_max_bytes)
        if found is None:
            known = members.expressions.get(expression)
            found = frozenset() if known is None else known.topics
        resolved[expression] = ResolvedExpression(found, topics.version, now_ms)
    return resolved


def _matching(expression: str, topics: Topics, record_max_bytes: int) -> frozenset[str] | None:
    """None if that are too many, or it takes too long: there may be more topics than before."""
    try:
        found = Pattern(expression).matching(topics.by_name)
    except RequestRefused:
        return None
    size_bytes = sum(len(topic.encode()) + 3 for topic in found)
    return found if size_bytes <= record_max_bytes // 2 else None
