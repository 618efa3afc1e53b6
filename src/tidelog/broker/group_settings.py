"""Settings of groups as shards use them, kept up to date with the broker's and with the image."""

from collections.abc import Mapping, Sequence

from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.group import resolve
from tidelog.core.controller.changes import Change, GroupConfigChanged
from tidelog.core.controller.image import ClusterImage
from tidelog.core.groups.context import NO_CONFIGS


class GroupSettings:
    """`current` has those groups that have settings of their own, and is replaced with each change.

    `default` is what every other group has.
    """

    __slots__ = ("_set", "current", "default")

    def __init__(self, default: ConsumerGroupsConfig) -> None:
        self.default = default
        self.current: Mapping[str, ConsumerGroupsConfig] = NO_CONFIGS
        self._set: dict[str, Mapping[str, str]] = {}

    def on_config(self, default: ConsumerGroupsConfig) -> None:
        """The broker's settings are these now; groups have them where they say nothing else."""
        if default == self.default:
            return
        self.default = default
        self.current = {group_id: resolve(one, default) for group_id, one in self._set.items()}

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        changed = {each.group_id for each in changes if isinstance(each, GroupConfigChanged)}
        if not changed:
            return
        known = {group_id: one for group_id, one in self.current.items() if group_id not in changed}
        for group_id in changed:
            self._set.pop(group_id, None)
        for group_id in changed & image.group_configs.keys():
            self._set[group_id] = image.group_config(group_id)
            known[group_id] = resolve(self._set[group_id], self.default)
        self.current = known
