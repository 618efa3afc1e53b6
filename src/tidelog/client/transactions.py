"""Transactions of a cluster: which there are, who has one open, and those that nobody will end.

A transaction *hangs* in a partition if it is open there and no coordinator is going to end it:
read_committed consumers wait behind it for ever. It happens to records that were written when their
transaction had ended (KIP-664, KIP-890).
"""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from tidelog.client import direct_transactions as direct
from tidelog.client.admin import Admin
from tidelog.client.bootstrap import Address
from tidelog.client.coordinators import TRANSACTION, ask_coordinator
from tidelog.client.errors import RequestFailed
from tidelog.client.group_values import PartitionKey
from tidelog.client.names import require_transactional_id
from tidelog.client.transaction_values import (
    HangingTransaction,
    PartitionProducer,
    TransactionDescription,
    TransactionListing,
)
from tidelog.client.values import BrokerNode

_UNKNOWN = frozenset({"TRANSACTIONAL_ID_NOT_FOUND"})


class Transactions:
    """A connection to a cluster for its transactions."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0) -> None:
        """Raises ClusterUnreachable at once if nobody listens at `bootstrap`."""
        self._admin = Admin(bootstrap, timeout_s=timeout_s)
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admin.__exit__(kind, error, trace)

    def listings(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
    ) -> list[TransactionListing]:
        """All transactional ids, sorted; each broker knows those that it coordinates."""
        found = [
            listing
            for broker in self._brokers()
            for listing in direct.list_transactions(
                broker, states=states, producer_ids=producer_ids, timeout_s=self._timeout_s
            )
        ]
        return sorted(found, key=lambda listing: listing.transactional_id)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """What its coordinator knows; RequestFailed if there is no such id."""
        require_transactional_id(transactional_id)
        try:
            return ask_coordinator(
                [Address(broker.host, broker.port) for broker in self._brokers()],
                transactional_id,
                TRANSACTION,
                lambda coordinator: direct.describe_transaction(
                    coordinator, transactional_id, timeout_s=self._timeout_s
                ),
                timeout_s=self._timeout_s,
            )
        except RequestFailed as error:
            if error.code_name in _UNKNOWN:
                sentence = f"there is no transactional id {transactional_id}"
                raise RequestFailed(error.code_name, sentence) from error
            raise

    def producers(self, topic: str, partitions: Iterable[int]) -> list[PartitionProducer]:
        """The producers that leaders remember in these partitions."""
        return [
            producer
            for leader, numbers in self._by_leader(topic, set(partitions)).items()
            for producer in direct.describe_producers(
                leader, topic, numbers, timeout_s=self._timeout_s
            )
        ]

    def partitions_of(self, topic: str) -> range:
        try:
            (described,) = self._admin.describe_topics([topic])
        except RequestFailed as error:
            if error.is_unknown_topic:
                raise RequestFailed(error.code_name, f"there is no topic {topic}") from error
            raise
        return range(len(described.partitions))

    def topic_names(self) -> list[str]:
        return self._admin.topic_names()

    def abort(self, key: PartitionKey, *, open_since: int) -> PartitionProducer:
        """End the transaction that is open in a partition since that offset, as an abort.

        Only for one that hangs: a coordinator that still means to commit it will not know.
        """
        for producer in self.producers(key.topic, [key.partition]):
            if producer.open_since == open_since:
                (leader,) = self._by_leader(key.topic, {key.partition})
                direct.abort(leader, producer, timeout_s=self._timeout_s)
                return producer
        raise RequestFailed(
            "TRANSACTIONAL_ID_NOT_FOUND", f"no transaction is open in {key} since {open_since}"
        )

    def hanging(
        self, topics: Iterable[str], *, now_ms: int, older_than_ms: int
    ) -> list[HangingTransaction]:
        """Those that are open in these topics for so long, with nobody to end them."""
        old = open_since_long(
            (
                producer
                for topic in topics
                for producer in self.producers(topic, self.partitions_of(topic))
            ),
            now_ms=now_ms,
            older_than_ms=older_than_ms,
        )
        if not old:
            return []
        producer_ids = sorted({each.producer.producer_id for each in old})
        described = [
            self.describe(each.transactional_id)
            for each in self.listings(producer_ids=producer_ids)
        ]
        return nobody_ends(old, described)

    def _brokers(self) -> tuple[BrokerNode, ...]:
        return self._admin.describe_cluster().brokers

    def _by_leader(self, topic: str, wanted: set[int]) -> dict[Address, list[int]]:
        brokers = {broker.id: broker for broker in self._brokers()}
        (described,) = self._admin.describe_topics([topic])
        leaders: dict[Address, list[int]] = {}
        for partition in described.partitions:
            if partition.partition not in wanted:
                continue
            leader = brokers.get(-1 if partition.leader is None else partition.leader)
            if leader is None:
                raise RequestFailed(
                    "LEADER_NOT_AVAILABLE", f"nobody leads {topic}-{partition.partition}"
                )
            leaders.setdefault(Address(leader.host, leader.port), []).append(partition.partition)
        missing = wanted - {number for numbers in leaders.values() for number in numbers}
        if missing:
            raise RequestFailed("UNKNOWN_TOPIC_OR_PART", f"there is no {topic}-{min(missing)}")
        return leaders


def open_since_long(
    producers: Iterable[PartitionProducer], *, now_ms: int, older_than_ms: int
) -> list[HangingTransaction]:
    """Those with a transaction that is open and was not written to for so long."""
    ages = ((producer, now_ms - (producer.last_timestamp_ms or 0)) for producer in producers)
    return [
        HangingTransaction(producer=producer, age_ms=age_ms)
        for producer, age_ms in ages
        if producer.open_since is not None and age_ms >= older_than_ms
    ]


def nobody_ends(
    old: Iterable[HangingTransaction], described: Iterable[TransactionDescription]
) -> list[HangingTransaction]:
    """Those whose partition is on no coordinator's list; it is from there that markers are sent."""
    cared_for = {(each.producer_id, key) for each in described for key in each.partitions}
    return [each for each in old if (each.producer.producer_id, each.producer.key) not in cared_for]
