"""Which partitions there are and where their logs begin and end, of many topics at once.

For readers of whole topics, with any settings that librdkafka knows: `Admin` is for people, who
have a bootstrap address. Asking creates no topic.
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    OffsetSpec,
    TopicMetadata,
)

from tidelog.base.ids import TopicPartition
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable, RequestFailed
from tidelog.client.translation import failure, translated

REFUSED_CONNECTION: Final = frozenset({"_AUTHENTICATION", "_SSL"})
"""Codes of a failure that does not pass: a wrong password, a certificate that is not trusted."""

_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_RECONNECT_MAX_MS: Final = "1000"
"""The Java client's. A broker that is back would not be connected to for another ten seconds."""
_RETRY_INTERVAL_S: Final = 0.1
_FIRST_TRY_S: Final = 1.0
"""Each try may take twice as long as the one before: a leader that is dead is given up early, and
one that is slow is waited for in the end."""
# Of a partition whose leader is another than librdkafka believes, or has only just become it.
_LEADER_CHANGED: Final = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH",
        # librdkafka's, at once, of a partition that nobody leads: all of its brokers are away, or
        # have only just come back.
        "_NOENT",
    }
)


class TopicOffsets:
    """A connection to a cluster. Every call raises ClientError if nobody who knows answers."""

    def __init__(
        self, settings: Mapping[str, str], *, is_committed_only: bool, timeout_s: float
    ) -> None:
        self._bootstrap = settings["bootstrap.servers"]
        self._isolation = (
            IsolationLevel.READ_COMMITTED if is_committed_only else IsolationLevel.READ_UNCOMMITTED
        )
        self._timeout_s = timeout_s
        self._complaints = _Complaints()
        self._client = AdminClient(
            {**_reconnecting(settings), **settings}, error_cb=self._complaints.note
        )
        self._is_outdated = False
        """Whether librdkafka may believe in a leader that is none any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.__exit__(kind, error, trace)

    # -- which ones --------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> str | None:
        """By which a topic is told from another of its name; None if the cluster has no ids."""
        answers = self._client.describe_topics(
            TopicCollection([topic]), request_timeout=self._timeout_s
        )
        # Ends, as below.
        with translated(self._bootstrap):
            topic_id = answers[topic].result().topic_id
        number = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
        return None if number == (0, 0) else str(topic_id)

    def partitions_of(self, topics: Collection[str]) -> frozenset[TopicPartition]:
        """Raises RequestFailed if one of the topics does not exist."""
        known = self._metadata().topics
        for topic in topics:
            if topic not in known:
                raise RequestFailed("UNKNOWN_TOPIC_OR_PART", f"there is no topic {topic}")
        return self._partitions(known[topic] for topic in topics)

    def partitions_matching(self, pattern: str) -> frozenset[TopicPartition]:
        """Of all topics whose whole name matches; internal ones have to be named."""
        matches = re.compile(pattern).fullmatch
        return self._partitions(
            topic
            for name, topic in self._metadata().topics.items()
            if name not in _INTERNAL and matches(name)
        )

    def leaders_of(self, topics: Collection[str]) -> dict[TopicPartition, Address]:
        """Who leads each partition, where anybody does."""
        answer = self._metadata()
        addresses = {
            number: Address(str(broker.host), broker.port)
            for number, broker in answer.brokers.items()
        }
        return {
            TopicPartition(topic, number): addresses[partition.leader]
            for topic in topics
            if topic in answer.topics
            for number, partition in answer.topics[topic].partitions.items()
            if partition.leader in addresses
        }

    def _metadata(self) -> ClusterMetadata:
        """Of all topics: to ask for one by name would create it.

        A first try is short: by then it is known whether brokers do not let anybody in.
        """
        try:
            answer = self._asked(min(_FIRST_TRY_S, self._timeout_s))
        except ClusterUnreachable:
            answer = self._asked(self._timeout_s)
        self._is_outdated = False
        return answer

    def _asked(self, timeout_s: float) -> ClusterMetadata:
        self._client.poll(0)
        self._complaints.last = None
        try:
            with translated(self._bootstrap):
                return self._client.list_topics(timeout=timeout_s)
        except ClusterUnreachable as error:
            # Of a call that has timed out librdkafka does not say why nobody could be asked.
            self._client.poll(0)
            complaint = self._complaints.last
            if complaint is None:
                raise
            if _is_refusal(complaint):
                raise RequestFailed(complaint.name(), complaint.str()) from error
            raise ClusterUnreachable(
                f"no broker at {self._bootstrap} answered in time: {complaint.str()}"
            ) from error

    def _partitions(self, topics: Iterable[TopicMetadata]) -> frozenset[TopicPartition]:
        found = set()
        for topic in topics:
            if topic.error is not None:
                # Perhaps in a moment. To leave it out would be to say that it does not exist.
                raise failure(topic.error, self._bootstrap)
            found |= {TopicPartition(str(topic.topic), number) for number in topic.partitions}
        return frozenset(found)

    # -- where -------------------------------------------------------------------------------------

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each log begins."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._list(dict.fromkeys(partitions, earliest))

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Up to where each may be read: the high watermark, or the last stable offset."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._list(dict.fromkeys(partitions, latest))

    def at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset of each that is not older; None if all are."""
        specs = {
            partition: OffsetSpec.for_timestamp(timestamp_ms)
            for partition, timestamp_ms in timestamps_ms.items()
        }
        return {
            partition: offset if offset >= 0 else None
            for partition, offset in self._list(specs).items()
        }

    def _list(self, specs: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        """Asked again for `timeout_s` while partitions get another leader.

        librdkafka asks whom it has heard of, in the epoch that it has heard of, and may be refused
        for minutes, or wait: it does not look for a leader again because of that.
        """
        if not specs:
            return {}
        begun_s = time.monotonic()
        try_s = min(_FIRST_TRY_S, self._timeout_s)
        while True:
            if self._is_outdated:
                self._metadata()
            try:
                return self._listed(specs, try_s)
            except ClientError as error:
                self._is_outdated = True
                if not _is_passing(error) or time.monotonic() - begun_s > self._timeout_s:
                    raise
            try_s = min(2 * try_s, self._timeout_s)
            time.sleep(_RETRY_INTERVAL_S)

    def _listed(
        self, specs: Mapping[TopicPartition, OffsetSpec], timeout_s: float
    ) -> dict[TopicPartition, int]:
        answers = self._client.list_offsets(
            {KafkaPartition(topic, number): spec for (topic, number), spec in specs.items()},
            isolation_level=self._isolation,
            request_timeout=timeout_s,
        )
        return {
            TopicPartition(each.topic, each.partition): self._offset(answer)
            for each, answer in answers.items()
        }

    def _offset(self, answer: "Future[object]") -> int:
        # Ends: librdkafka completes every future when its request times out.
        with translated(self._bootstrap):
            offset: int = answer.result().offset  # type: ignore[attr-defined]
        if offset == OFFSET_INVALID:
            # What librdkafka says when it could not reach the leader in time, as if it were true.
            raise ClusterUnreachable(f"no broker at {self._bootstrap} answered in time")
        return offset


class _Complaints:
    """What librdkafka says of connections, when it is polled.

    Apart from whoever owns the client: each would keep the other alive.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # Which says less than what came before it.
            self.last = error


def _is_refusal(complaint: KafkaError) -> bool:
    """Whether trying again is of no use. Of TLS it may be: librdkafka calls any end of it that."""
    if complaint.name() not in REFUSED_CONNECTION:
        return False
    return complaint.name() == "_AUTHENTICATION" or "certificate" in complaint.str()


def _reconnecting(settings: Mapping[str, str]) -> dict[str, str]:
    """Unless somebody has decided about it: librdkafka wants the longest to be longer."""
    if "reconnect.backoff.ms" in settings:
        return {}
    return {"reconnect.backoff.max.ms": _RECONNECT_MAX_MS}


def _is_passing(error: ClientError) -> bool:
    return not isinstance(error, RequestFailed) or error.code_name in _LEADER_CHANGED
