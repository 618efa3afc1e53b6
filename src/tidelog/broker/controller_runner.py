"""Registers this broker, holds or follows the controller's claim, and performs what is decided.

The rules are in `core/controller/`; here they are read from and written to the coordinator, one
request at a time. Each request is one transaction, fenced by the controller epoch: a controller
that lost its claim cannot write, however late it notices.
"""

from collections.abc import Callable, Sequence

from tidelog.core.controller.changes import Change
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.requests import (
    ConfigOutcome,
    ConfigReplacement,
    IncrementalChange,
    NewPartitions,
    NewTopic,
    TopicOutcome,
    TopicReference,
)

ImageCallback = Callable[[ClusterImage, Sequence[Change]], None]


class ControllerRunner:
    """Every method is called on the event loop; requests are served one at a time."""

    @property
    def image(self) -> ClusterImage:
        """The newest image; EMPTY_IMAGE before `start` has returned."""
        raise NotImplementedError

    @property
    def is_controller(self) -> bool:
        raise NotImplementedError

    def subscribe(self, callback: ImageCallback) -> None:
        """Call back on the loop with every new image and the changes that led to it.

        Whoever subscribes before `start` first hears of everything that is there.
        """
        raise NotImplementedError

    async def start(self) -> ClusterImage:
        """Connect, register, take part in the election, load; raises ConfigError, StorageError."""
        raise NotImplementedError

    async def run(self) -> None:
        """Follow claims and brokers until cancelled; raises SessionLost."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Give up the registration and the claim at once."""
        raise NotImplementedError

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicOutcome]:
        raise NotImplementedError

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[TopicOutcome]:
        raise NotImplementedError

    async def delete_topics(self, topics: Sequence[TopicReference]) -> list[TopicOutcome]:
        raise NotImplementedError

    async def alter_configs(
        self, replacements: Sequence[ConfigReplacement], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        """Replace all settings of each resource (AlterConfigs)."""
        raise NotImplementedError

    async def incremental_alter_configs(
        self, changes: Sequence[IncrementalChange], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        raise NotImplementedError

    async def allocate_producer_ids(self) -> range:
        """The next 1,000 producer ids, which nobody gets again, whatever crashes."""
        raise NotImplementedError
