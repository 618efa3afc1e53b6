"""librdkafka's consumer as both readers use it: what it hands out, and whether there is hope.

Who is assigned what, and what becomes of a message, is for the reader to say (`reader.py`,
`group_reader.py`). Positions are never stored by librdkafka itself: records that it has handed out
need not have been shown.
"""

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message

from tidelog.client.errors import ClusterUnreachable
from tidelog.client.translation import translated

UNREACHABLE_AFTER_S: Final = 10.0
_BATCH_RECORDS_MAX: Final = 10_000

Settings = Mapping[str, str | int | bool]
"""By librdkafka's names."""


class MessageSource:
    """One consumer."""

    def __init__(self, bootstrap: str, settings: Settings, *, is_following: bool) -> None:
        """`is_following`: waiting is the job, also for brokers."""
        self._bootstrap = bootstrap
        self._is_following = is_following
        self._unreachable_since: float | None = None
        with translated(bootstrap):
            self.consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_uncommitted",
                    "log_level": 0,
                    "error_cb": self._on_error,
                    **settings,
                }
            )

    def next_messages(self, timeout_s: float) -> list[Message]:
        """All that there are, errors among them; none if none came within `timeout_s`."""
        with translated(self._bootstrap):
            first = self.consumer.poll(timeout_s)
            if first is None:
                return []
            # Asked to wait, consume() waits for all of them, however many there are.
            return [first, *self.consumer.consume(_BATCH_RECORDS_MAX, 0)]

    def judge_progress(self, *, has_records: bool) -> None:
        """Raises ClusterUnreachable if there is none because no broker has been reachable for
        UNREACHABLE_AFTER_S."""
        if has_records:
            self._unreachable_since = None
        if self._unreachable_since is None or self._is_following:
            return
        if time.monotonic() - self._unreachable_since > UNREACHABLE_AFTER_S:
            raise ClusterUnreachable(
                f"no broker at {self._bootstrap} was reachable for {UNREACHABLE_AFTER_S:.0f} s"
            )

    def _on_error(self, error: KafkaError) -> None:
        # Called from within poll(), on our own thread.
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._unreachable_since is None:
            self._unreachable_since = time.monotonic()
