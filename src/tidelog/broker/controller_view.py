"""What a controller knows beside the image, and only as long as it is controller.

Brokers that are about to stop, replicas on log directories that failed, and how often somebody was
elected who may lack what was acknowledged. None of it is stored: the next controller hears of it
from the brokers themselves.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.broker.broker_channels import Told
from tidelog.config.topic import TopicConfig, resolve_fitting
from tidelog.core.controller.changes import Change, failed_replica_changes
from tidelog.core.controller.election import Candidates, UncleanElection
from tidelog.core.controller.image import BrokerImage, ClusterImage

logger = logging.getLogger(__name__)

UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"


class ControllerView:
    """Kept by the controller runner, which asks it for candidates."""

    def __init__(self) -> None:
        self.shutting_down: dict[BrokerId, int] = {}
        """Brokers that said they stop, under which broker epoch."""
        self.unclean_elections = 0
        self._offline: dict[TopicPartition, set[BrokerId]] = {}

    def clear(self) -> None:
        """A new term: what was known of the last one may not be true any more."""
        self.shutting_down.clear()
        self._offline.clear()

    def candidates(
        self,
        brokers: Mapping[BrokerId, BrokerImage],
        image: ClusterImage,
        topic_defaults: TopicConfig,
    ) -> Candidates:
        def allow_unclean(topic: str) -> bool:
            overrides = image.topic_config(topic)
            if UNCLEAN_LEADER_ELECTION not in overrides:
                return topic_defaults.unclean_leader_election_enable
            config, _misfits = resolve_fitting(overrides, topic_defaults)
            return config.unclean_leader_election_enable

        return Candidates.of(
            brokers,
            shutting_down=self.shutting_down,
            offline_replicas=self._offline,
            allow_unclean=allow_unclean,
        )

    def failed_changes(self, image: ClusterImage) -> list[Change]:
        """What is to be published so that `image` says which replicas failed, as known here."""
        failed: dict[BrokerId, set[TopicPartition]] = {}
        for one, brokers in self._offline.items():
            state = image.partition(*one)
            for broker_id in brokers:
                if state and broker_id in state.replicas and broker_id in image.brokers:
                    failed.setdefault(broker_id, set()).add(one)
        return failed_replica_changes(image, {one: frozenset(each) for one, each in failed.items()})

    def is_offline(self, one: TopicPartition, broker_id: BrokerId) -> bool:
        """Whether that replica is held to be on a log directory that failed."""
        return broker_id in self._offline.get(one, ())

    def is_news(self, told: Told) -> bool:
        """Whether what a broker says of its replicas is not known yet."""
        if any(told.broker_id not in self._offline.get(one, ()) for one in told.failed):
            return True
        return any(
            told.broker_id in brokers and one in told.working
            for one, brokers in self._offline.items()
        )

    def note_told(self, told: Told) -> None:
        """Take note of what a broker says of its replicas."""
        for one in told.failed:
            self._offline.setdefault(one, set()).add(told.broker_id)
        for one in [each for each in self._offline if each in told.working]:
            self._offline[one].discard(told.broker_id)
            if not self._offline[one]:
                del self._offline[one]

    def forget_brokers(
        self,
        before: Mapping[BrokerId, BrokerImage],
        after: Mapping[BrokerId, BrokerImage],
    ) -> None:
        """What was known of a registration ends with it."""
        gone = {one for one, broker in before.items() if after.get(one) != broker}
        for one in gone:
            self.shutting_down.pop(one, None)
        for partition in list(self._offline):
            self._offline[partition] -= gone
            if not self._offline[partition]:
                del self._offline[partition]

    def note_unclean(self, elections: Sequence[UncleanElection]) -> None:
        """R9: what was lost is logged and counted."""
        self.unclean_elections += len(elections)
        for one in elections:
            logger.warning(
                "unclean leader elected: acknowledged records may be lost",
                extra={
                    "partition": one.topic_partition,
                    "leader": one.leader,
                    "last_isr": one.last_isr,
                },
            )


def affected_by(told: Told, image: ClusterImage) -> list[TopicPartition]:
    """Partitions for which something follows from what a broker says of its replicas.

    Also if it was said before: what follows may not have been stored then. In order, so that what
    is decided does not depend on how sets are ordered.
    """
    failed = [
        one
        for one in told.failed
        if (state := image.partition(*one)) is not None and told.broker_id in state.isr
    ]
    may_be_led = [
        one
        for one in told.working
        if (state := image.partition(*one)) is not None and state.leader == NO_BROKER
    ]
    return [*sorted(failed), *sorted(may_be_led)]
