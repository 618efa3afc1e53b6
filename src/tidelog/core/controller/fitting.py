"""Whether settings that are asked for go together with what is set elsewhere.

A setting of all brokers meets settings of single brokers, and both are what topics inherit. Each
was fine by itself when it was set. A change is refused if some broker would have to leave something
out on its account (`config/fitting.py`). What a broker leaves out already is no reason to refuse
other changes: otherwise two mistakes could keep each other from being mended.

Properties files of other brokers are not known here: this broker's stands for theirs. A broker
whose file says something else leaves out what does not fit, and goes on.
"""

from collections.abc import Mapping

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig, new_misfits
from tidelog.core.controller.image import NO_SETTINGS, ClusterImage, Settings


class Fitting:
    """All that is set, as it will be after what was decided so far for one request."""

    def __init__(self, image: ClusterImage, config: BrokerConfig) -> None:
        self._config = config
        self._brokers = dict(image.broker_configs)
        self._topics = dict(image.topic_configs)
        self._effective: dict[BrokerId | None, BrokerConfig] = {}

    def broker(self, broker_id: BrokerId | None) -> BrokerConfig:
        """What a broker has in force; None is one that nothing was set for."""
        effective = self._effective.get(broker_id)
        if effective is None:
            effective = self._resolved(self._brokers, broker_id)
            self._effective[broker_id] = effective
        return effective

    def set_broker(self, broker_id: BrokerId | None, settings: Settings) -> None:
        """Set these for one broker, or for all of them. Raises RequestRefused."""
        after = {**self._brokers, broker_id: settings}
        affected = self._brokers_by_id() if broker_id is None else [broker_id]
        effective = {one: self._resolved(after, one) for one in affected}
        for one, config in effective.items():
            self._require_broker_fits(one, self.broker(one), config)
        judged: set[tuple[TopicConfig, TopicConfig]] = set()
        for one, config in effective.items():
            defaults = self.broker(one).topic_defaults, config.topic_defaults
            if defaults not in judged:  # Most brokers have the same, and there may be many topics.
                judged.add(defaults)
                self._require_topics_fit(one, *defaults)
        self._brokers = after
        self._effective |= effective

    def set_topic(self, name: str, settings: Settings) -> None:
        """Set these for a topic. Raises RequestRefused."""
        self.require_topic(settings, self._topics.get(name, NO_SETTINGS))
        self._topics[name] = settings

    def require_topic(self, settings: Settings, before: Settings = NO_SETTINGS) -> None:
        """Raises RequestRefused if a topic that has `before` may not have `settings` instead."""
        for one in self._brokers_by_id():
            defaults = self.broker(one).topic_defaults
            for misfit in new_misfits(before, defaults, settings, defaults):
                raise RequestRefused(ErrorCode.INVALID_CONFIG, f"{misfit.reason}{self._on(one)}")

    def _resolved(
        self, brokers: Mapping[BrokerId | None, Settings], broker_id: BrokerId | None
    ) -> BrokerConfig:
        return self._config.with_fitting(
            cluster_wide=brokers.get(None, NO_SETTINGS),
            this_broker=NO_SETTINGS if broker_id is None else brokers.get(broker_id, NO_SETTINGS),
        )

    def _brokers_by_id(self) -> list[BrokerId | None]:
        """Those that have settings of their own, after one that has none."""
        return [None, *sorted(one for one in self._brokers if one is not None)]

    def _require_broker_fits(
        self, broker_id: BrokerId | None, before: BrokerConfig, after: BrokerConfig
    ) -> None:
        for misfit in after.misfits:
            if misfit not in before.misfits:
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST, f"{misfit.reason}{self._on(broker_id)}"
                )

    def _require_topics_fit(
        self, broker_id: BrokerId | None, before: TopicConfig, after: TopicConfig
    ) -> None:
        if before == after:
            return
        # Most topics have the same settings.
        distinct = {frozenset(each.items()): name for name, each in sorted(self._topics.items())}
        for name in distinct.values():
            overrides = self._topics[name]
            for misfit in new_misfits(overrides, before, overrides, after):
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST,
                    f"topic '{name}' has settings of its own that stand in the way: "
                    f"{misfit.reason}{self._on(broker_id)}",
                )

    def _on(self, broker_id: BrokerId | None) -> str:
        """Where it is so: those that nothing is set for need not be named."""
        if broker_id is None:
            return ""
        return f" on broker {broker_id}, which has settings of its own"
