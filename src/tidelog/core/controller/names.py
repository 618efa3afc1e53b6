"""Which names a topic may have: Kafka's rules, with INVALID_TOPIC_EXCEPTION for the rest.

A name becomes a folder and a metric. Hence the small alphabet and the limit on length; hence also
that two names may not differ in `.` against `_` alone, which metrics cannot tell apart.
"""

import re
from collections.abc import Iterable, Mapping

from tidelog.base.errors import ErrorCode, RequestRefused

NAME_MAX_CHARACTERS = 249
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def require_legal(name: str) -> None:
    """Refuse what could not be a folder or a metric."""
    reason = _fault(name)
    if reason is not None:
        raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _fault(name: str) -> str | None:
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"a topic must not be called '{name}'"
    if len(name) > NAME_MAX_CHARACTERS:
        return f"a topic name has at most {NAME_MAX_CHARACTERS} characters, not {len(name)}"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"'{name}' is no topic name: only ASCII letters, digits, '.', '_' and '-' are allowed"
        )
    return None


def can_collide(name: str) -> bool:
    return "." in name or "_" in name


def fold(name: str) -> str:
    """The same for names that may not exist side by side."""
    return name.replace(".", "_")


def folded(names: Iterable[str]) -> dict[str, str]:
    """Existing names by what they fold to, to be asked by `require_distinct`."""
    return {fold(name): name for name in names if can_collide(name)}


def require_distinct(name: str, existing: Mapping[str, str]) -> None:
    """Refuse a name that differs from another one in `.` against `_` only."""
    other = existing.get(fold(name))
    if other is not None and other != name:
        raise RequestRefused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"'{name}' cannot be told from the topic '{other}': metrics treat '.' and '_' alike",
        )
