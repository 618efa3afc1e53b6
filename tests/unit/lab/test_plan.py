"""A cluster for people has replicas; one for production says so with one switch (D4)."""

from pathlib import Path

import pytest

from tidelog.base.errors import ConfigError
from tidelog.config.broker import BrokerConfig
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.plan import ClusterPlan, Profile, chosen_settings, require_coordination

FOLDER = ClusterFolder(Path("/data"))


def plan(broker_count: int, coordination: str, settings: dict[str, str]) -> ClusterPlan:
    return ClusterPlan(
        broker_count=broker_count,
        host="127.0.0.1",
        port=9092,
        coordination=coordination,
        settings=settings,
        listening_ports={},
        advertised_ports={},
    )


def config_of(broker_count: int, profile: Profile | None, given: dict[str, str]) -> BrokerConfig:
    settings = chosen_settings(broker_count, profile, given)
    return BrokerConfig.load(plan(broker_count, "sqlite", settings).properties_of(FOLDER, 2, 9093))


@pytest.mark.parametrize(("broker_count", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_new_topics_have_as_many_replicas_as_there_can_be_up_to_three(
    broker_count: int, replicas: int
) -> None:
    config = config_of(broker_count, None, {})
    assert config.replication.default_replication_factor == replicas
    assert config.groups.offsets_topic_replication_factor == replicas
    assert config.transactions.transaction_state_log_replication_factor == replicas
    assert config.transactions.transaction_state_log_min_isr == min(2, replicas)
    assert config.replication.min_insync_replicas == 1


def test_reliable_is_three_replicas_two_in_sync_and_no_unclean_election() -> None:
    """D4; acks=all is for the producer to say."""
    config = config_of(4, Profile.RELIABLE, {})
    assert config.replication.default_replication_factor == 3
    assert config.replication.min_insync_replicas == 2
    assert not config.replication.unclean_leader_election_enable
    assert config.groups.offsets_topic_replication_factor == 3
    assert config.transactions.transaction_state_log_replication_factor == 3
    assert config.transactions.transaction_state_log_min_isr == 2


def test_reliable_needs_three_brokers() -> None:
    with pytest.raises(ConfigError, match="--brokers is 2"):
        chosen_settings(2, Profile.RELIABLE, {})


@pytest.mark.parametrize("profile", [None, Profile.RELIABLE])
def test_what_was_given_wins(profile: Profile | None) -> None:
    given = {"default.replication.factor": "2", "min.insync.replicas": "1"}
    assert given.items() <= chosen_settings(3, profile, given).items()


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners", "log.dir", "log.dirs"])
def test_brokers_do_not_share_what_only_one_can_have(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        chosen_settings(2, None, {name: "x"})
    assert chosen_settings(1, None, {name: "x"})[name] == "x"


@pytest.mark.parametrize(
    "name", ["node.id", "broker.id", "tidelog.coordination", "zookeeper.connect"]
)
def test_what_up_gives_to_each_broker_cannot_be_given_to_all(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        chosen_settings(1, None, {name: "x"})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mim.insync.replicas", "is not a known setting; did you mean min.insync.replicas?"),
        ("nonsense", "is not a known setting"),
    ],
)
def test_a_setting_that_nobody_knows_is_refused(name: str, sentence: str) -> None:
    """It was a line in a log, and records were written to one replica."""
    with pytest.raises(ConfigError) as refused:
        chosen_settings(3, None, {name: "2"})
    assert str(refused.value) == f"{name} {sentence}"


def test_a_setting_of_kafkas_that_has_no_effect_is_taken() -> None:
    assert chosen_settings(3, None, {"process.roles": "broker"})["process.roles"] == "broker"


def test_brokers_have_numbers_ports_and_folders_of_their_own_and_one_coordinator() -> None:
    properties = plan(3, "sqlite", {}).properties_of(FOLDER, 2, 9093)
    assert properties == {
        "listeners": "PLAINTEXT://127.0.0.1:9093",
        "log.dirs": "/data/broker-2/logs",
        "tidelog.coordination": "sqlite:/data/coordination.db",
        "node.id": "2",
    }


def test_zookeeper_is_not_waited_for_longer_than_a_person_would() -> None:
    hosts = "zookeeper:a:2181,b:2181/tidelog"
    config = BrokerConfig.load(plan(1, hosts, {}).properties_of(FOLDER, 1, 9092))
    assert config.coordination.zookeeper_hosts == "a:2181,b:2181/tidelog"
    assert config.coordination.zookeeper_connection_timeout_ms == 6_000
    given = {"zookeeper.connection.timeout.ms": "100"}
    config = BrokerConfig.load(plan(1, hosts, given).properties_of(FOLDER, 1, 9092))
    assert config.coordination.zookeeper_connection_timeout_ms == 100


@pytest.mark.parametrize("text", ["sqlite", "zookeeper:a:2181", "zookeeper:a,b/c"])
def test_coordinators_are_two(text: str) -> None:
    assert require_coordination(text) == text


@pytest.mark.parametrize("text", ["", "zookeeper", "zookeeper:", "sqlite:/x", "etcd:a"])
def test_anything_else_is_no_coordinator(text: str) -> None:
    with pytest.raises(ConfigError, match="--coordination is"):
        require_coordination(text)


@pytest.mark.parametrize(("asked", "of_second"), [("9400", 9401), ("0", 0), ("-1", -1)])
def test_each_broker_has_its_metrics_on_a_port_of_its_own(asked: str, of_second: int) -> None:
    config = config_of(3, None, {"tidelog.metrics.port": asked})
    assert config.network.tidelog_metrics_port == of_second
