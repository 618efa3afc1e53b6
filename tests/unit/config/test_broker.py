"""A broker's settings: Kafka's files load, precedence is Kafka's, mistakes are named."""

from pathlib import Path

import pytest

from tidelog.base.errors import ConfigError
from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.config.properties import parse_properties
from tidelog.config.topic import TOPIC_SETTINGS, TopicConfig

STOCK_KRAFT_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

STOCK_ZOOKEEPER_FILE = """
broker.id=0
num.network.threads=3
num.io.threads=8
log.dirs=/tmp/kafka-logs
log.retention.hours=168
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def test_nothing_given_is_kafkas_defaults_for_topics() -> None:
    assert BrokerConfig.load({}).topic_defaults == TopicConfig()


def test_a_stock_kraft_file_loads_with_a_warning_for_what_has_no_effect() -> None:
    config = BrokerConfig.load(parse_properties(STOCK_KRAFT_FILE))
    assert config.broker_id == 1
    assert config.network.bound_listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.network.advertised == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.warnings == (
        "process.roles is a setting of Kafka's that has no effect here",
        "controller.quorum.bootstrap.servers is a setting of Kafka's that has no effect here",
        "share.coordinator.state.topic.replication.factor is a setting of Kafka's that has no "
        "effect here",
        "share.coordinator.state.topic.min.isr is a setting of Kafka's that has no effect here",
        "the listener CONTROLLER of controller.listener.names is not opened",
    )


def test_a_stock_zookeeper_file_loads_on_zookeeper() -> None:
    config = BrokerConfig.load(parse_properties(STOCK_ZOOKEEPER_FILE))
    assert config.broker_id == 0
    assert config.coordination.zookeeper_hosts == "localhost:2181"
    assert config.warnings == ()


ENSEMBLE = "a:2181,[::1]:2182,b/kafka/one"


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ({}, None),
        ({"tidelog.coordination": "sqlite"}, None),
        ({"zookeeper.connect": ""}, None),
        ({"zookeeper.connect": ENSEMBLE}, ENSEMBLE),
        ({"tidelog.coordination": "zookeeper", "zookeeper.connect": ENSEMBLE}, ENSEMBLE),
        ({"tidelog.coordination": f"zookeeper:{ENSEMBLE}"}, ENSEMBLE),
    ],
)
def test_the_clusters_memory_is_where_the_settings_say(
    given: dict[str, str], hosts: str | None
) -> None:
    config = BrokerConfig.load(given)
    assert config.coordination.zookeeper_hosts == hosts
    assert config.warnings == ()


@pytest.mark.parametrize("coordination", ["sqlite", "sqlite:/c.db", "zookeeper:other:1"])
def test_an_ensemble_that_is_not_used_is_warned_about(coordination: str) -> None:
    config = BrokerConfig.load(
        {"zookeeper.connect": "a:2181", "tidelog.coordination": coordination}
    )
    assert config.warnings == (
        f"zookeeper.connect has no effect here: tidelog.coordination is {coordination}",
    )


@pytest.mark.parametrize(
    "hosts", ["/chroot", ",a", "a,", "a:", "a:x", "a:123456", "a b", "a:1//x", "a:1/x//y", "[::1"]
)
def test_an_ensemble_that_cannot_be_read_is_refused(hosts: str) -> None:
    with pytest.raises(ConfigError, match=r"must be HOST:PORT,HOST:PORT/CHROOT"):
        BrokerConfig.load({"zookeeper.connect": hosts})


def test_zookeeper_without_an_ensemble_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is missing"):
        BrokerConfig.load({"tidelog.coordination": "zookeeper"})


def test_a_former_life_may_hold_a_registration_as_long_as_its_session() -> None:
    assert BrokerConfig.load({}).coordination.registration_timeout_ms == 9_000
    on_zookeeper = BrokerConfig.load(
        {"zookeeper.connect": "a", "zookeeper.session.timeout.ms": "6000"}
    )
    assert on_zookeeper.coordination.registration_timeout_ms == 12_000


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": "2"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_the_finer_retention_setting_wins(given: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.load(given).topic_defaults.retention_ms == retention_ms


@pytest.mark.parametrize(
    ("given", "field_name", "value"),
    [
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.hours": "1", "log.roll.ms": "5"}, "segment_ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "5"}, "segment_jitter_ms", 5),
        ({"log.flush.scheduler.interval.ms": "7"}, "flush_ms", 7),
        ({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "5"}, "flush_ms", 5),
        ({"message.max.bytes": "9"}, "max_message_bytes", 9),
        ({"log.index.size.max.bytes": "8"}, "segment_index_bytes", 8),
        ({"log.cleanup.policy": "compact"}, "cleanup_policy", ("compact",)),
        ({"min.insync.replicas": "2"}, "min_insync_replicas", 2),
        ({"unclean.leader.election.enable": "true"}, "unclean_leader_election_enable", True),
    ],
)
def test_topics_inherit_the_brokers_settings(
    given: dict[str, str], field_name: str, value: object
) -> None:
    assert getattr(BrokerConfig.load(given).topic_defaults, field_name) == value


@pytest.mark.parametrize("value", ["0", "-2"])
@pytest.mark.parametrize(
    "name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"]
)
def test_retention_is_unlimited_or_at_least_one(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is '{value}' but must be at least 1, or -1"):
        BrokerConfig.load({name: value})


@pytest.mark.parametrize(
    ("given", "broker_id"),
    [
        ({}, 1),
        ({"node.id": "5"}, 5),
        ({"broker.id": "5"}, 5),
        ({"broker.id": "5", "node.id": "5"}, 5),
        ({"broker.id": "-1"}, 1),
        ({"broker.id": "-1", "node.id": "5"}, 5),
        ({"broker.id": "0"}, 0),
    ],
)
def test_a_broker_has_one_id_under_either_name(given: dict[str, str], broker_id: int) -> None:
    assert BrokerConfig.load(given).broker_id == broker_id


def test_ids_that_disagree_are_refused_by_both_names() -> None:
    with pytest.raises(ConfigError, match=r"broker\.id is 1 but must equal node\.id, which is 2"):
        BrokerConfig.load({"broker.id": "1", "node.id": "2"})


def test_log_dirs_win_over_log_dir() -> None:
    config = BrokerConfig.load({"log.dir": "/a", "log.dirs": "/b, /c"})
    assert config.log_dirs == (Path("/b"), Path("/c"))
    assert BrokerConfig.load({"log.dir": "/a", "log.dirs": ""}).log_dirs == (Path("/a"),)


@pytest.mark.parametrize("given", [{"log.dirs": "/a,"}, {"log.dir": ""}])
def test_an_empty_log_dir_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="which has an empty folder name"):
        BrokerConfig.load(given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"listeners": "SSL://:9093"}, "SSL is not served, only PLAINTEXT"),
        ({"listeners": "INSIDE://:1"}, "does not say what INSIDE is"),
        ({"listeners": ""}, "listeners is '' but must name at least one address"),
        (
            {
                "listeners": "PLAINTEXT://10.0.0.1:9092,INSIDE://:9092",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
            },
            "PLAINTEXT://10.0.0.1:9092 and INSIDE://:9092, which have the same port",
        ),
        ({"listeners": "nonsense"}, "'nonsense', which is not NAME://host:port"),
        (
            {"advertised.listeners": "OTHER://h:1"},
            "advertised.listeners holds OTHER://h:1, which listeners does not",
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "whose host no client can reach"),
        ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name is 'X'"),
        ({"max.connections.per.ip.overrides": "a"}, "holds 'a', which is not address:count"),
        ({"max.connections.per.ip.overrides": "a:-1"}, "holds 'a:-1'"),
        ({"authorizer.class.name": "A"}, "authorizer.class.name is 'A', which is not served"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol is 'SSL'"),
        (
            {"replica.fetch.wait.max.ms": "9", "replica.lag.time.max.ms": "8"},
            "replica.fetch.wait.max.ms is 9 but must not exceed replica.lag.time.max.ms",
        ),
        (
            {"replica.fetch.wait.max.ms": "9", "replica.socket.timeout.ms": "8"},
            "must not exceed replica.socket.timeout.ms, which is 8",
        ),
        (
            {"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"},
            "group.min.session.timeout.ms is 9 but must not exceed",
        ),
        (
            {"broker.heartbeat.interval.ms": "9", "broker.session.timeout.ms": "9"},
            "broker.heartbeat.interval.ms is 9 but must be less than broker.session.timeout.ms",
        ),
        ({"tidelog.coordination": "etcd:h"}, "tidelog.coordination is 'etcd:h'"),
        ({"tidelog.cluster.id": "a b"}, "tidelog.cluster.id is 'a b'"),
    ],
)
def test_a_setting_that_cannot_work_is_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(given)
    assert sentence in str(refused.value)


def test_an_unknown_setting_of_our_own_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(
        ConfigError,
        match=r"read\.budget is not a setting; did you mean tidelog\.read\.budget\.bytes\?",
    ):
        BrokerConfig.load({"tidelog.read.budget": "1"})


def test_an_unknown_setting_is_a_warning_with_a_suggestion() -> None:
    assert BrokerConfig.load({"log.retention.hour": "1", "zzz": "1"}).warnings == (
        "log.retention.hour is not a known setting and has no effect; "
        "did you mean log.retention.hours?",
        "zzz is not a known setting and has no effect",
    )


def test_listeners_keep_their_order_and_advertise_what_they_are_told() -> None:
    config = BrokerConfig.load(
        {
            "listeners": "PLAINTEXT://0.0.0.0:9092,INSIDE://10.0.0.1:9094",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
            "advertised.listeners": "INSIDE://inside.example:9094",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert config.network.advertised == (
        Listener("PLAINTEXT", "", 9092),
        Listener("INSIDE", "inside.example", 9094),
    )
    assert config.network.inter_broker_listener == "INSIDE"


def test_connection_overrides_are_read_by_address() -> None:
    network = BrokerConfig.load(
        {"max.connections.per.ip.overrides": "10.0.0.1:3, [::1]:4, host:0"}
    ).network
    assert network.connection_overrides == {"10.0.0.1": 3, "::1": 4, "host": 0}


def test_a_coordinator_file_may_live_elsewhere() -> None:
    config = BrokerConfig.load({"tidelog.coordination": "sqlite:/srv/c.db", "log.dirs": "/a"})
    assert config.coordination_path == Path("/srv/c.db")


def test_dynamic_settings_win_over_static_ones() -> None:
    config = BrokerConfig.load({"log.retention.ms": "1", "max.connections": "5"}).with_dynamic(
        cluster_wide={"log.retention.ms": "2", "max.connections": "6"},
        this_broker={"log.retention.ms": "3"},
    )
    assert config.topic_defaults.retention_ms == 3
    assert config.network.max_connections == 6


def test_taking_dynamic_settings_away_brings_static_ones_back() -> None:
    static = BrokerConfig.load({"log.retention.ms": "1"})
    dynamic = static.with_dynamic(cluster_wide={"log.retention.ms": "2"}, this_broker={})
    assert dynamic.with_dynamic(cluster_wide={}, this_broker={}) == static


def test_every_setting_is_documented_and_holds_its_default() -> None:
    config = BrokerConfig.load({})
    for setting in BROKER_SETTINGS.values():
        assert setting.documentation
        assert config.value_of(setting) == setting.default


def test_every_topic_default_has_the_bounds_of_its_topic_setting() -> None:
    config = BrokerConfig.load({})
    for setting in TOPIC_SETTINGS.values():
        value = getattr(config.topic_defaults, setting.field_name)
        assert setting.parse(setting.render(value) or "") == value


@pytest.mark.parametrize(
    ("value", "is_rack_aware"),
    [
        ("", False),
        ("org.apache.kafka.common.replica.LeaderSelector", False),
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", True),
    ],
)
def test_kafkas_two_replica_selectors_are_known(value: str, is_rack_aware: bool) -> None:
    config = BrokerConfig.load({"replica.selector.class": value})
    assert config.replication.is_rack_aware is is_rack_aware
    assert config.warnings == ()
    assert not BrokerConfig.load({}).replication.is_rack_aware


def test_any_other_replica_selector_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load({"replica.selector.class": "com.example.Selector"})
    for known in ("LeaderSelector", "RackAwareReplicaSelector", "com.example.Selector"):
        assert known in str(refused.value)
