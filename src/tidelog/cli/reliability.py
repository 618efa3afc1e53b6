"""Whether a topic is what the reliable profile asks for (D4).

The producer alone cannot make a record safe: acks=all with one replica is one replica.
"""

from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.client.admin import Admin
from tidelog.client.values import TopicResource

REPLICAS_MIN: Final = 3
IN_SYNC_MIN: Final = 2


def require_reliable_topic(bootstrap: str, topic: str) -> None:
    """Raise ConfigError naming the first thing that keeps `topic` from being reliable."""
    with Admin(bootstrap) as admin:
        (description,) = admin.describe_topics([topic])
        settings = {value.name: value.value for value in admin.configs(TopicResource(topic))}
    replicas = min(len(partition.replicas) for partition in description.partitions)
    if replicas < REPLICAS_MIN:
        raise ConfigError(
            f"--profile reliable needs {REPLICAS_MIN} replicas, but {topic} has {replicas}"
        )
    in_sync = int(settings["min.insync.replicas"] or 0)
    if not IN_SYNC_MIN <= in_sync <= replicas:
        raise ConfigError(
            f"--profile reliable needs min.insync.replicas from {IN_SYNC_MIN} to {replicas}, "
            f"but {topic} has {in_sync}"
        )
    if settings["unclean.leader.election.enable"] == "true":
        raise ConfigError(
            "--profile reliable needs unclean.leader.election.enable=false, "
            f"but {topic} has it true"
        )
