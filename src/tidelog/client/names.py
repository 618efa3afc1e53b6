"""Names that must not be empty, said as a broker would.

confluent-kafka raises ValueError for some of them, and ends the process for others, before any
broker is asked.
"""

from tidelog.client.errors import RequestFailed


def require_topic_name(topic: str) -> None:
    """Raises RequestFailed if there is none."""
    if not topic:
        raise RequestFailed("TOPIC_EXCEPTION", "a topic name must not be empty")


def require_group_id(group_id: str) -> None:
    """Raises RequestFailed if there is none."""
    if not group_id:
        raise RequestFailed("INVALID_REQUEST", "a group's id must not be empty")


def require_transactional_id(transactional_id: str) -> None:
    """Raises RequestFailed if there is none."""
    if not transactional_id:
        raise RequestFailed("INVALID_REQUEST", "a transactional id must not be empty")
