"""The topics of the cluster, as far as groups have to know them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from tidelog.base.ids import TopicId


class TopicFacts(NamedTuple):
    """What an assignment depends on."""

    topic_id: TopicId
    partition_count: int


@dataclass(frozen=True, slots=True)
class Topics:
    """All of them, at one moment.

    `version` stands for their names: it is another when a topic is created or deleted, and the same
    on every broker, because coordinators compare it with what their predecessors wrote.
    """

    by_name: Mapping[str, TopicFacts]
    names: Mapping[TopicId, str]
    version: int

    @classmethod
    def of(cls, by_name: Mapping[str, TopicFacts]) -> "Topics":
        names = {facts.topic_id: name for name, facts in by_name.items()}
        version = _number(blake2b("\0".join(sorted(by_name)).encode(), digest_size=8))
        return cls(by_name, names, version)

    def ids(self, names: Iterable[str]) -> frozenset[TopicId]:
        """The ids of those of `names` that exist."""
        return frozenset(self.by_name[name].topic_id for name in names if name in self.by_name)

    def counts(self, ids: Iterable[TopicId]) -> dict[TopicId, int]:
        return {
            topic_id: self.by_name[self.names[topic_id]].partition_count
            for topic_id in ids
            if topic_id in self.names
        }

    def digest(self, names: Iterable[str]) -> int:
        """A number that changes with what is known of `names`; 0 if none of them exists."""
        known = [name for name in sorted(names) if name in self.by_name]
        if not known:
            return 0
        digest = blake2b(digest_size=8)
        for name in known:
            topic_id, partition_count = self.by_name[name]
            digest.update(b"%s %s %d\n" % (name.encode(), topic_id.bytes, partition_count))
        return _number(digest)


def _number(digest: blake2b) -> int:
    return int.from_bytes(digest.digest(), "big", signed=True)


NO_TOPICS: Final = Topics.of({})
