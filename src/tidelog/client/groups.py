"""Groups and their offsets, over confluent-kafka's AdminClient.

Every call blocks until the cluster has answered and raises `ClientError` if the answer is no.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConsumerGroupDescription,
    MemberDescription,
)

from tidelog.client import direct_groups
from tidelog.client.admin import Admin
from tidelog.client.bootstrap import Address, parse_bootstrap
from tidelog.client.coordinators import GROUP, ask_coordinator
from tidelog.client.errors import RequestFailed
from tidelog.client.group_values import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupPosition,
    PartitionKey,
)
from tidelog.client.names import require_group_id
from tidelog.client.offset_reset import PlannedOffset, Reset, ToTimestamp, plan_reset
from tidelog.client.translation import failure, translated
from tidelog.client.values import OffsetBounds

T = TypeVar("T")

_UNKNOWN = "unknown"


class Groups:
    """A connection to a cluster for its groups."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0) -> None:
        """Raises ClusterUnreachable at once if nobody listens at `bootstrap`."""
        self.admin = Admin(bootstrap, timeout_s=timeout_s)
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.__exit__(kind, error, trace)
        self.admin.__exit__(kind, error, trace)

    def listings(self) -> list[GroupListing]:
        """All groups, sorted. Raises what the first broker said that did not answer."""
        answer = self._wait(self._client.list_consumer_groups(request_timeout=self._timeout_s))
        for error in answer.errors or []:
            assert isinstance(error, KafkaError)
            raise failure(error, self._bootstrap)
        found = [
            GroupListing(
                group_id=each.group_id,
                kind=_word(each.type),
                state=self._state(each.group_id, each.type, each.state),
            )
            for each in answer.valid or []
        ]
        return sorted(found, key=lambda group: group.group_id)

    def describe(self, group_ids: Sequence[str]) -> list[GroupDescription]:
        """The groups of these names, in this order. One that does not exist is dead."""
        if not group_ids:
            return []
        for group_id in group_ids:
            require_group_id(group_id)
        answers = self._client.describe_consumer_groups(
            list(group_ids), request_timeout=self._timeout_s
        )
        return [self._described(self._wait(answers[group_id])) for group_id in group_ids]

    def require(self, group_id: str) -> GroupDescription:
        """The group of that name; RequestFailed if there is none.

        A group that holds offsets and never had members is there, though nobody describes it.
        """
        (group,) = self.describe([group_id])
        if group.is_dead and not self.committed(group_id):
            raise RequestFailed("GROUP_ID_NOT_FOUND", f"there is no group {group_id}")
        return group

    def committed(self, group_id: str) -> dict[PartitionKey, int]:
        """The offsets that the group has committed."""
        return self._ask_coordinator(
            group_id,
            lambda address: direct_groups.committed_offsets(
                address, group_id, timeout_s=self._timeout_s
            ),
        )

    def positions(self, group: GroupDescription) -> list[GroupPosition]:
        """How far the group is in every partition that it has committed to or that is assigned."""
        committed = self.committed(group.group_id)
        bounds = self.bounds(committed.keys() | group.owners.keys())
        return [
            GroupPosition(
                key=key,
                committed=committed.get(key),
                end_offset=bounds[key].end_offset if key in bounds else None,
            )
            for key in sorted(committed.keys() | group.owners.keys())
        ]

    def bounds(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, OffsetBounds]:
        """Where these partitions start and end; those that nobody leads are left out."""
        found: dict[PartitionKey, OffsetBounds] = {}
        for topic, partitions in _by_topic(keys).items():
            try:
                bounds = self.admin.offset_bounds(topic, partitions)
            except RequestFailed as error:
                if not error.is_unknown_topic:  # Deleted, while offsets of it are kept.
                    raise
                continue
            found |= {PartitionKey(topic, number): each for number, each in bounds.items()}
        return found

    def plan(
        self, group_id: str, reset: Reset, keys: Iterable[PartitionKey]
    ) -> list[PlannedOffset]:
        """What `reset` would make of the group's offsets in these partitions."""
        wanted = set(keys)
        at_timestamp: dict[PartitionKey, int | None] = {}
        if isinstance(reset, ToTimestamp):
            at_timestamp = self._at(wanted, reset.timestamp_ms)
        return plan_reset(
            reset,
            bounds=self.bounds(wanted),
            committed=self.committed(group_id),
            at_timestamp=at_timestamp,
        )

    def set_offsets(self, group_id: str, offsets: Mapping[PartitionKey, int]) -> None:
        """Commit these offsets in the name of a group that nobody is a member of."""
        require_group_id(group_id)
        partitions = [
            TopicPartition(key.topic, key.partition, offset) for key, offset in offsets.items()
        ]
        asked = ConsumerGroupTopicPartitions(group_id, partitions)
        (answer,) = self._client.alter_consumer_group_offsets(
            [asked], request_timeout=self._timeout_s
        ).values()
        self._checked(self._wait(answer))

    def delete_offsets(self, group_id: str, keys: Iterable[PartitionKey]) -> None:
        """Forget what the group has committed to these partitions."""
        topics = _by_topic(keys)
        self._ask_coordinator(
            group_id,
            lambda address: direct_groups.delete_offsets(
                address, group_id, topics, timeout_s=self._timeout_s
            ),
        )

    def delete(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        require_group_id(group_id)
        (answer,) = self._client.delete_consumer_groups(
            [group_id], request_timeout=self._timeout_s
        ).values()
        self._wait(answer)

    def _described(self, group: ConsumerGroupDescription) -> GroupDescription:
        coordinator = group.coordinator
        return GroupDescription(
            group_id=group.group_id,
            kind=_word(group.type),
            state=self._state(group.group_id, group.type, group.state),
            assignor=group.partition_assignor,
            is_simple=group.is_simple_consumer_group,
            coordinator_id=None if coordinator is None else coordinator.id,
            members=tuple(_member(each) for each in group.members),
        )

    def _state(self, group_id: str, kind: object, state: object) -> str:
        """What librdkafka says, or its coordinator where librdkafka does not know the word."""
        if _word(state) != _UNKNOWN or _word(kind) != "consumer":
            return _word(state)
        try:
            word = self._ask_coordinator(
                group_id,
                lambda address: direct_groups.consumer_state(
                    address, group_id, timeout_s=self._timeout_s
                ),
            )
        except RequestFailed:
            return _UNKNOWN  # It has changed its protocol, or is gone.
        return word.lower()

    def _at(
        self, keys: Iterable[PartitionKey], timestamp_ms: int
    ) -> dict[PartitionKey, int | None]:
        return {
            PartitionKey(topic, number): offset
            for topic, partitions in _by_topic(keys).items()
            for number, offset in self.admin.offsets_at(
                topic, partitions, timestamp_ms=timestamp_ms
            ).items()
        }

    def _ask_coordinator(self, group_id: str, question: Callable[[Address], T]) -> T:
        require_group_id(group_id)
        return ask_coordinator(
            parse_bootstrap(self._bootstrap),
            group_id,
            GROUP,
            lambda coordinator: question(Address(coordinator.host, coordinator.port)),
            timeout_s=self._timeout_s,
        )

    def _checked(self, answer: ConsumerGroupTopicPartitions) -> Sequence[TopicPartition]:
        partitions = answer.topic_partitions or []
        for each in partitions:
            if each.error is not None:
                raise failure(each.error, self._bootstrap)
        return partitions

    def _wait(self, answer: "Future[T]") -> T:
        # Ends: librdkafka completes every future when its request times out.
        with translated(self._bootstrap):
            return answer.result()


def _by_topic(keys: Iterable[PartitionKey]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for key in sorted(keys):
        topics.setdefault(key.topic, []).append(key.partition)
    return topics


def _word(value: object) -> str:
    """`PREPARING_REBALANCING` of an enum as people write it."""
    return str(getattr(value, "name", _UNKNOWN)).lower().replace("_", " ")


def _member(member: MemberDescription) -> GroupMember:
    assigned = member.assignment.topic_partitions
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id or None,
        client_id=member.client_id,
        host=member.host.removeprefix("/"),
        partitions=tuple(sorted(PartitionKey(each.topic, each.partition) for each in assigned)),
    )
