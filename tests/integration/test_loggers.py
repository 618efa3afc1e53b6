"""Levels of one broker's loggers, by whichever broker is controller (P1, KIP-412)."""

from pathlib import Path

from tests.support.three_brokers import BROKER_IDS, ThreeBrokers
from tidelog.client.admin import Admin
from tidelog.client.values import LoggerResource

LOGGER = "tidelog.broker"


def levels(cluster: ThreeBrokers) -> list[str | None]:
    with Admin(cluster.bootstrap) as admin:
        return [
            value.value
            for broker_id in BROKER_IDS
            for value in admin.configs(LoggerResource(broker_id))
            if value.name == LOGGER
        ]


def test_each_broker_has_levels_of_its_own_until_it_stops(tmp_path: Path) -> None:
    with ThreeBrokers(tmp_path) as cluster:
        assert levels(cluster) == ["INFO"] * 3
        with Admin(cluster.bootstrap) as admin:
            for broker_id, level in zip(BROKER_IDS, ("DEBUG", "WARN", "TRACE"), strict=True):
                admin.alter_configs(
                    LoggerResource(broker_id), set_values={LOGGER: level}, deleted=[]
                )
        assert levels(cluster) == ["DEBUG", "WARN", "TRACE"]
        with Admin(cluster.bootstrap) as admin:
            admin.alter_configs(LoggerResource(2), set_values={}, deleted=[LOGGER])
        assert levels(cluster) == ["DEBUG", "INFO", "TRACE"]
        cluster.restart()
        assert levels(cluster) == ["INFO"] * 3
