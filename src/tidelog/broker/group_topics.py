"""The topics of the cluster as groups see them, kept up to date with the image.

Most images differ in who leads what, which is nothing to groups: those leave it as it is, and
shards compare by identity.
"""

from collections.abc import Sequence

from tidelog.core.controller.changes import Change, PartitionsAdded, TopicCreated, TopicDeleted
from tidelog.core.controller.image import ClusterImage
from tidelog.core.groups.topics import NO_TOPICS, TopicFacts, Topics


class GroupTopics:
    """`current` is replaced when a topic is created or deleted, or gets partitions."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: Topics = NO_TOPICS

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        changed = [_topic_of(change) for change in changes]
        touched = {name for name in changed if name is not None}
        if not touched:
            return
        known = {name: facts for name, facts in self.current.by_name.items() if name not in touched}
        for name in touched & image.topics.keys():
            topic = image.topics[name]
            known[name] = TopicFacts(topic.topic_id, len(topic.partitions))
        self.current = Topics.of(known)


def _topic_of(change: Change) -> str | None:
    """Whose facts `change` is about, if it is about any that groups look at."""
    match change:
        case TopicCreated():
            return change.topic.name
        case TopicDeleted():
            return change.name
        case PartitionsAdded():
            return change.topic
    return None
