"""Settings of single groups as shards use them, kept up to date with the image."""

from collections.abc import Mapping, Sequence

from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.group import resolve
from tidelog.core.controller.changes import Change, GroupConfigChanged
from tidelog.core.controller.image import ClusterImage
from tidelog.core.groups.context import NO_CONFIGS


class GroupSettings:
    """`current` has those groups that have settings of their own, and is replaced with each change.

    `config` is what every other group has.
    """

    __slots__ = ("_config", "current")

    def __init__(self, config: ConsumerGroupsConfig) -> None:
        self._config = config
        self.current: Mapping[str, ConsumerGroupsConfig] = NO_CONFIGS

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        changed = {each.group_id for each in changes if isinstance(each, GroupConfigChanged)}
        if not changed:
            return
        known = {group_id: one for group_id, one in self.current.items() if group_id not in changed}
        for group_id in changed & image.group_configs.keys():
            known[group_id] = resolve(image.group_config(group_id), self._config)
        self.current = known
