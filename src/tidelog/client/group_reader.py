"""Read a topic as a member of a consumer group, and commit how far that came.

    join ──▶ assigned ──▶ read() ──▶ the caller shows records ──▶ on_shown() ──▶ committed

Only what the caller says that it has shown is committed: every few seconds, when partitions go to
another member, and when the reader is closed. Who is killed in between shows some records again
the next time, and misses none (D1: at least once).

A reader that does not follow is done when it has seen the end of every partition that it has.
Members that have all partitions may be about to give some of them up, so a reader that has none
waits for ASSIGNMENT_WAIT_S before it is done.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidelog.client.message_source import MessageSource, Settings
from tidelog.client.names import require_group_id
from tidelog.client.reader import FetchedRecord, fetched_record
from tidelog.client.translation import failure, translated

ASSIGNMENT_WAIT_S: Final = 5.0
_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._PARTITION_EOF,
    }
)
"""librdkafka goes on by itself after these."""


class GroupReader:
    """One member of `group`, subscribed to one topic."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        protocol: str,
        reset: str,
        is_following: bool,
    ) -> None:
        """`protocol`: classic or consumer. `reset`: where a group begins that has not committed."""
        require_group_id(group)
        self._bootstrap = bootstrap
        self._is_following = is_following
        self._unread: set[int] = set()
        """Partitions of ours whose end was not seen yet."""
        self._assigned: set[int] = set()
        self._idle_since: float | None = None
        settings: Settings = {
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": reset,
            "enable.auto.commit": True,
        }
        self._source = MessageSource(bootstrap, settings, is_following=is_following)
        self._consumer = self._source.consumer
        with translated(bootstrap):
            self._consumer.subscribe(
                [topic],
                on_assign=self._on_assigned,
                on_revoke=self._on_revoked,
                on_lost=self._on_revoked,
            )
        self._topic = topic

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commits what was shown, and leaves the group."""
        self._consumer.close()

    @property
    def is_done(self) -> bool:
        """Whether everything was read that there was; never for who follows."""
        if self._is_following or self._unread or self._idle_since is None:
            return False
        return bool(self._assigned) or time.monotonic() - self._idle_since > ASSIGNMENT_WAIT_S

    def read(self, *, timeout_s: float) -> list[FetchedRecord]:
        """The next records, or none if none came within `timeout_s`.

        Raises ClusterUnreachable as `RangeReader.read` does.
        """
        messages = self._source.next_messages(timeout_s)
        records = [record for message in messages if (record := self._accept(message)) is not None]
        self._source.judge_progress(has_records=bool(records))
        return records

    def on_shown(self, records: Sequence[FetchedRecord]) -> None:
        """These, and all before them in their partitions, need not be read again."""
        ends = {record.partition: record.offset + 1 for record in records}
        for partition, end_offset in ends.items():
            place = TopicPartition(self._topic, partition, end_offset)
            try:
                self._consumer.store_offsets(offsets=[place])
            except KafkaException as error:
                # Another member has the partition by now, and shows them again.
                if error.args[0].code() != KafkaError._STATE:
                    raise failure(error.args[0], self._bootstrap) from error

    def _accept(self, message: Message) -> FetchedRecord | None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            assert partition is not None
            assert offset is not None
            return fetched_record(message, partition, offset)
        if error.code() == KafkaError._PARTITION_EOF and partition is not None:
            self._unread.discard(partition)
        if error.code() not in _PASSING and not error.retriable():
            raise failure(error, self._bootstrap)
        return None

    # -- called by librdkafka from within poll(), on our own thread -------------------------------

    def _on_assigned(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._idle_since = time.monotonic()
        partitions = {place.partition for place in places}
        self._assigned |= partitions
        self._unread |= partitions

    def _on_revoked(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._idle_since = time.monotonic()
        partitions = {place.partition for place in places}
        self._assigned -= partitions
        self._unread -= partitions
