"""Metadata (3): what topics there are, who leads, and where the brokers listen.

A topic that does not exist is created if both the client and `auto.create.topics.enable` allow it
(P4). The answer then waits for the creation, so that the client can go on at once. While a broker
seems to have died, or others have yet to come up, it waits a little for the next leaders
(`departures.py`).

What asks for, or tells of, thousands of partitions is read and written aside (`large_requests.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER, BrokerId
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.departures import Departures
from tidelog.broker.large_requests import LARGE_BYTES, LARGE_COUNT, LargeRequests
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import RequestTasks
from tidelog.broker.topic_creation import TopicCreation
from tidelog.core.controller.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from tidelog.core.controller.names import INTERNAL_TOPICS, require_legal
from tidelog.wire.api import RequestHeader
from tidelog.wire.metadata import (
    NO_OPERATIONS,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    decode_metadata,
    encode_metadata_response,
)
from tidelog.wire.primitives import NO_UUID

# A partition costs a few microseconds.
_PARTITIONS_PER_PART = 8
# Versions 10 and 11 have a field for the id of a topic and do not accept one.
_FIRST_BY_ID = 12
# Without an authorizer everybody may do everything. Kafka numbers its operations; each is a bit.
ALL_TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


@dataclass(frozen=True, slots=True)
class MetadataHandler:
    """Answers from the cluster image."""

    broker_id: BrokerId
    partitions: Partitions
    topic_creation: TopicCreation
    auto_create_topics: bool
    tasks: RequestTasks
    large: LargeRequests
    departures: Departures

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        pending = PendingAnswer(connection, exclusive=True)
        if len(frame) > LARGE_BYTES:
            work = self._answer_large(connection, pending, bytes(frame), header)
        else:
            request = decode_metadata(frame, header.body_position, header.api_version)
            missing = self._to_create(request)
            is_small = self._count(request) < LARGE_COUNT
            is_certain = not (
                self.departures.is_in_doubt
                or self._asks_for_leaders(request)
                or (self.departures.is_young and not self._are_led(request))
            )
            if not missing and is_small and is_certain:
                return self._encode(connection, request, header, {})
            work = self._create_then_answer(connection, pending, request, header, missing)
        self.tasks.start(connection, header.api_key, work)
        return pending

    def _count(self, request: MetadataRequest) -> int:
        """How much there is to tell, in parts that cost as much as those of other answers."""
        topics = self.partitions.image.topics
        if request.topics is None:
            count = len(topics) + len(self.partitions)
        else:
            known = (topics.get(name) for name, _id in request.topics if name is not None)
            count = sum(len(topic.partitions) for topic in known if topic is not None)
        return count // _PARTITIONS_PER_PART

    def _asks_for_leaders(self, request: MetadataRequest) -> bool:
        """Perhaps because one of them has died."""
        return bool(request.topics) and self.departures.are_possible

    def _are_led(self, request: MetadataRequest) -> bool:
        """Whether somebody leads all that is asked for by name and is there."""
        topics = self.partitions.image.topics
        return all(
            state.leader != NO_BROKER
            for name, _id in request.topics or ()
            if name is not None and name in topics
            for state in topics[name].partitions
        )

    def _to_create(self, request: MetadataRequest) -> list[str]:
        if not (self.auto_create_topics and request.allow_auto_topic_creation and request.topics):
            return []
        known = self.partitions.image.topics
        return [
            name
            for name, topic_id in request.topics
            if name is not None and topic_id == NO_UUID and name not in known
        ]

    async def _answer_large(
        self, connection: Connection, pending: PendingAnswer, frame: bytes, header: RequestHeader
    ) -> None:
        async with self.large.turn(len(frame)):
            if not pending.is_wanted:
                return
            request = await self.large.aside.run(
                partial(
                    decode_metadata, memoryview(frame), header.body_position, header.api_version
                ),
                count=len(frame),
            )
            missing = self._to_create(request)
            await self._create_then_answer(connection, pending, request, header, missing)

    async def _create_then_answer(
        self,
        connection: Connection,
        pending: PendingAnswer,
        request: MetadataRequest,
        header: RequestHeader,
        missing: Sequence[str],
    ) -> None:
        refused = await self.topic_creation.create_missing(missing) if missing else {}
        if request.topics:
            await self.departures.moment()
        await self.departures.certainty()
        await self.departures.election(partial(self._are_led, request))
        answer = await self.large.aside.run(
            partial(self._encode, connection, request, header, refused),
            count=max(self._count(request), len(request.topics or ())),
        )
        if pending.is_wanted:
            pending.complete([answer])

    def _encode(
        self,
        connection: Connection,
        request: MetadataRequest,
        header: RequestHeader,
        refused: dict[str, ErrorCode],
    ) -> bytes:
        image = self.partitions.image
        operations = (
            ALL_TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS
        )
        response = MetadataResponse(
            throttle_ms=0,
            brokers=_brokers(
                [*image.brokers.values(), *self.departures.listed()], connection.listener_name
            ),
            cluster_id=image.cluster_id,
            controller_id=self._controller(image),
            topics=self._topics(image, request, header.api_version, refused, operations),
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS
                if request.include_cluster_authorized_operations
                else NO_OPERATIONS
            ),
            error_code=0,
        )
        return encode_metadata_response(header.api_version, header.correlation_id, response)

    def _controller(self, image: ClusterImage) -> BrokerId:
        """Whom to ask what is the controller's to decide: us if that does not answer.

        What we are asked we pass on, to the next one as soon as there is one.
        """
        found = image.controller_id
        return found if self.departures.answers(found) else self.broker_id

    def _topics(
        self,
        image: ClusterImage,
        request: MetadataRequest,
        version: int,
        refused: dict[str, ErrorCode],
        operations: int,
    ) -> list[MetadataTopic]:
        if request.topics is None:
            return [self._topic(image, topic, operations) for topic in image.topics.values()]
        # Kafka, too, answers once what is asked for twice.
        return [
            self._asked_for(image, name, topic_id, version, refused, operations)
            for name, topic_id in dict.fromkeys(request.topics)
        ]

    def _asked_for(
        self,
        image: ClusterImage,
        name: str | None,
        topic_id: bytes,
        version: int,
        refused: dict[str, ErrorCode],
        operations: int,
    ) -> MetadataTopic:
        topic: TopicImage | None
        if topic_id != NO_UUID and version >= _FIRST_BY_ID:
            known_name = self.partitions.topic_name(topic_id)
            topic = None if known_name is None else image.topics.get(known_name)
            unknown = _unknown(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        elif name is not None and topic_id == NO_UUID:
            topic = image.topics.get(name)
            unknown = _unknown(name, NO_UUID, refused.get(name) or _why_unknown(name))
        else:
            return _unknown(name, topic_id, ErrorCode.INVALID_REQUEST)
        return unknown if topic is None else self._topic(image, topic, operations)

    def _topic(self, image: ClusterImage, topic: TopicImage, operations: int) -> MetadataTopic:
        return MetadataTopic(
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id.bytes,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[
                _partition(image, topic.name, index, partition)
                for index, partition in enumerate(topic.partitions)
            ],
            authorized_operations=operations,
        )


def _brokers(known: Sequence[BrokerImage], listener_name: str) -> list[MetadataBroker]:
    brokers = []
    for broker in known:
        endpoint = broker.endpoint(listener_name)
        if endpoint is not None:
            brokers.append(
                MetadataBroker(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            )
    return brokers


def _partition(
    image: ClusterImage, topic: str, index: int, partition: PartitionImage
) -> MetadataPartition:
    code = ErrorCode.NONE
    if partition.leader == NO_BROKER or partition.leader not in image.brokers:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataPartition(
        error_code=code,
        partition=index,
        leader_id=NO_BROKER if code else partition.leader,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        offline_replicas=image.offline_replicas(topic, index),
    )


def _unknown(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataTopic:
    return MetadataTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=(),
        authorized_operations=NO_OPERATIONS,
    )


def _why_unknown(name: str) -> ErrorCode:
    try:
        require_legal(name)
    except RequestRefused as refusal:
        return refusal.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
