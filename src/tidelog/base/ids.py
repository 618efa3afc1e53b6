"""Names for the integers and strings that must not be mixed up.

A `NewType` costs nothing at run time and lets mypy refuse a partition number where an offset is
meant. Nothing here has behaviour beyond printing itself the way Kafka does.
"""

from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ControllerEpoch = NewType("ControllerEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TopicId = NewType("TopicId", UUID)

NO_BROKER = BrokerId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_OFFSET = Offset(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_TOPIC_ID = TopicId(UUID(int=0))


class TopicPartition(NamedTuple):
    """One partition of one topic; also the name of its folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic: a topic that is deleted and created again has another."""

    topic_id: TopicId
    partition: int
