"""Kafka's node layout, written and read back (C2); damaged nodes are named."""

import json
import re
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.controller.clusters import ids, partition, topic_id
from tidelog.base.errors import StorageError
from tidelog.base.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from tidelog.core.controller import nodes
from tidelog.core.controller.image import (
    BrokerImage,
    Endpoint,
    LastStop,
    PartitionImage,
    TopicImage,
)
from tidelog.core.controller.nodes import ControllerClaim, ProducerIdBlock, TopicAssignment

ASSIGNMENT = TopicAssignment(topic_id(1), (ids(1, 2), ids(2, 1)), {}, {})


def test_paths_are_kafkas() -> None:
    assert nodes.broker_path(BrokerId(3)) == "/brokers/ids/3"
    assert nodes.topic_path("t") == "/brokers/topics/t"
    assert nodes.state_path("t", 7) == "/brokers/topics/t/partitions/7/state"
    assert nodes.topic_config_path("t") == "/config/topics/t"
    assert nodes.broker_config_path(BrokerId(3)) == "/config/brokers/3"
    assert nodes.broker_config_path(None) == "/config/brokers/<default>"
    assert nodes.group_config_path("g-1") == "/config/groups/g-1"
    assert nodes.deletion_path("t") == "/admin/delete_topics/t"
    assert nodes.config_change_path(12) == "/config/changes/config_change_0000000012"


def test_every_persistent_node_comes_after_its_parent() -> None:
    seen = {""}
    for path in nodes.PERSISTENT_PATHS:
        assert path.rpartition("/")[0] in seen
        seen.add(path)


def test_a_broker_as_kafka_writes_it() -> None:
    endpoints = (
        Endpoint("PLAINTEXT", "PLAINTEXT", "host", 9092),
        Endpoint("SIX", "PLAINTEXT", "::1", 9093),
    )
    broker = BrokerImage(BrokerId(1), 77, endpoints, "rack-a", LastStop.KILLED)
    value = nodes.encode_broker(broker, now_ms=1_600_000_000_000)
    assert json.loads(value) == {
        "version": 5,
        "host": "host",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1600000000000",
        "endpoints": ["PLAINTEXT://host:9092", "SIX://[::1]:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "SIX": "PLAINTEXT"},
        "rack": "rack-a",
        "features": {},
        "tidelog": {"last_stop": "killed"},
    }
    assert nodes.decode_broker(BrokerId(1), value, broker_epoch=77) == broker


def test_a_broker_that_does_not_say_how_it_stopped_may_have_lost_everything() -> None:
    """R13."""
    value = nodes.encode_broker(
        BrokerImage(BrokerId(1), 1, (Endpoint("P", "PLAINTEXT", "h", 1),), None, LastStop.CLEAN),
        now_ms=1,
    )
    fields = json.loads(value)
    del fields["tidelog"]
    found = nodes.decode_broker(BrokerId(1), json.dumps(fields).encode(), broker_epoch=1)
    assert found.stop is LastStop.LOST


def test_a_topic_as_kafka_writes_it() -> None:
    moving = PartitionImage(BrokerId(1), LeaderEpoch(0), ids(1, 2, 3), ids(1, 2), ids(3), ids(1), 0)
    topic = TopicImage("t", TopicId(UUID("8cc3392f-e87a-4781-b316-7bfe2385575b")), (
        partition(1, 2), moving,
    ))  # fmt: skip
    value = nodes.encode_topic(topic)
    assert json.loads(value) == {
        "version": 3,
        "topic_id": "jMM5L-h6R4GzFnv-I4VXWw",
        "partitions": {"0": [1, 2], "1": [1, 2, 3]},
        "adding_replicas": {"1": [3]},
        "removing_replicas": {"1": [1]},
    }
    assert nodes.decode_topic("t", value) == TopicAssignment(
        topic.topic_id, (ids(1, 2), ids(1, 2, 3)), {1: ids(3)}, {1: ids(1)}
    )


def test_a_state_as_kafka_writes_it() -> None:
    state = partition(2, 1, leader=1, isr=(1,), epoch=5)
    value = nodes.encode_state(state, ControllerEpoch(3))
    assert json.loads(value) == {
        "controller_epoch": 3,
        "leader": 1,
        "version": 1,
        "leader_epoch": 5,
        "isr": [1],
    }
    assert nodes.decode_state("t", 1, ASSIGNMENT, value, version=5) == state


def test_fields_of_a_later_kafka_are_passed_over() -> None:
    value = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2],"more":{}}'
    assert nodes.decode_state("t", 1, ASSIGNMENT, value, version=0).leader == 2


def test_the_rest_as_kafka_writes_it() -> None:
    assert nodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert nodes.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"
    token = bytes(range(16))
    controller = nodes.encode_controller(BrokerId(4), token=token, now_ms=9)
    assert controller == (
        b'{"version":1,"brokerid":4,"timestamp":"9",'
        b'"tidelog":{"token":"000102030405060708090a0b0c0d0e0f"}}'
    )
    epoch = ControllerEpoch(12)
    assert nodes.decode_controller(controller, epoch) == ControllerClaim(BrokerId(4), epoch, token)
    kafkas = nodes.decode_controller(b'{"version":1,"brokerid":4,"timestamp":"9"}', epoch)
    assert kafkas == ControllerClaim(BrokerId(4), epoch, nodes.NO_TOKEN)
    assert nodes.encode_controller_epoch(ControllerEpoch(12)) == b"12"
    assert nodes.decode_controller_epoch(b"12") == 12
    assert nodes.encode_config({"a": "b"}) == b'{"version":1,"config":{"a":"b"}}'
    assert nodes.encode_config_change("/config/topics/t") == (
        b'{"version":2,"entity_path":"topics/t"}'
    )


def test_producer_id_blocks_end_with_their_last_id() -> None:
    block = ProducerIdBlock(BrokerId(1), 1000, 2000)
    value = nodes.encode_producer_id_block(block)
    assert value == b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert nodes.decode_producer_id_block(value) == block
    assert nodes.decode_producer_id_block(b"") is None


def test_config_changes_are_counted() -> None:
    assert nodes.config_change_number("config_change_0000000042") == 42
    assert nodes.config_change_number("somebody_elses") is None
    assert nodes.config_change_number("config_change_42") is None


@given(st.uuids())
def test_ids_are_written_as_kafka_writes_them(value: UUID) -> None:
    text = nodes.encode_uuid(value)
    assert len(text) == 22
    assert nodes.decode_uuid("/path", text) == value


@given(st.dictionaries(st.text(), st.text()))
def test_settings_come_back_as_they_were(settings: dict[str, str]) -> None:
    assert nodes.decode_config("/path", nodes.encode_config(settings)) == settings


def encoded(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def moving(*, adding: list[int], removing: list[int]) -> bytes:
    return encoded(
        topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
        partitions={"0": [1]},
        adding_replicas={"0": adding},
        removing_replicas={"0": removing},
    )


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={}, adding_replicas={}),
        encoded(partitions={"0": [1]}, adding_replicas={}, removing_replicas={}),
        encoded(topic_id="?", partitions={"0": [1]}, adding_replicas={}, removing_replicas={}),
        encoded(topic_id="AAAA", partitions={"0": [1]}, adding_replicas={}, removing_replicas={}),
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={"1": [1]}, adding_replicas={}),
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={"x": [1]}, adding_replicas={}),
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={"0": []}, adding_replicas={}),
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={"0": [1, 1]}, adding_replicas={}),
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={"0": [True]}, adding_replicas={}),
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={"0": "1"}, adding_replicas={}),
        encoded(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={"0": [1]}, adding_replicas=1),
        moving(adding=[2], removing=[]),
        moving(adding=[], removing=[2]),
        moving(adding=[1], removing=[1]),
        moving(adding=[1, 1], removing=[]),
    ],
    ids=lambda value: f"{value[:70]!r}",
)
def test_a_damaged_topic_is_named(value: bytes) -> None:
    with pytest.raises(StorageError, match="/brokers/topics/t"):
        nodes.decode_topic("t", value)


@pytest.mark.parametrize(
    "value",
    [
        encoded(leader=1, leader_epoch=0),
        encoded(leader="1", leader_epoch=0, isr=[1]),
        encoded(leader=1, leader_epoch=None, isr=[1]),
        encoded(leader=1, leader_epoch=0, isr=[9]),
        encoded(leader=1, leader_epoch=0, isr=[1, 1]),
        encoded(leader=1, leader_epoch=0, isr=[]),
        encoded(leader=1, leader_epoch=0, isr=[2]),
        encoded(leader=9, leader_epoch=0, isr=[1]),
    ],
)
def test_a_damaged_state_is_named(value: bytes) -> None:
    with pytest.raises(StorageError, match="/brokers/topics/t/partitions/0/state"):
        nodes.decode_state("t", 0, ASSIGNMENT, value, version=0)


@pytest.mark.parametrize(
    "value",
    [
        encoded(endpoints=["nonsense"], listener_security_protocol_map={}),
        encoded(endpoints=[1], listener_security_protocol_map={}),
        encoded(endpoints=[]),
        encoded(endpoints=[], listener_security_protocol_map={}, rack=5),
    ],
)
def test_a_damaged_broker_is_named(value: bytes) -> None:
    with pytest.raises(StorageError, match="/brokers/ids/1"):
        nodes.decode_broker(BrokerId(1), value, broker_epoch=0)


def test_other_damaged_nodes_are_named() -> None:
    with pytest.raises(StorageError, match="/controller_epoch"):
        nodes.decode_controller_epoch(b"-1")
    with pytest.raises(StorageError, match="/controller_epoch"):
        nodes.decode_controller_epoch(b"9" * 5_000)
    with pytest.raises(StorageError, match="/controller:"):
        nodes.decode_controller(b"{}", ControllerEpoch(1))
    with pytest.raises(StorageError, match="/controller:"):
        nodes.decode_controller(
            encoded(brokerid=1, tidelog={"token": "no digits"}), ControllerEpoch(1)
        )
    with pytest.raises(StorageError, match="/log_dir_event_notification"):
        nodes.decode_log_dir_event(nodes.log_dir_event_path(BrokerId(1), 2), b"{}")
    with pytest.raises(StorageError, match="/cluster/id"):
        nodes.decode_cluster_id(b"{}")
    with pytest.raises(StorageError, match="/config/topics/t"):
        nodes.decode_config("/config/topics/t", encoded(config={"a": 1}))
    with pytest.raises(StorageError, match="/latest_producer_id_block"):
        nodes.decode_producer_id_block(encoded(broker=1, block_start="x", block_end="9"))


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_a_value_or_a_storage_error(value: bytes) -> None:
    for decode in (
        lambda: nodes.decode_topic("t", value),
        lambda: nodes.decode_state("t", 0, ASSIGNMENT, value, version=0),
        lambda: nodes.decode_broker(BrokerId(1), value, broker_epoch=0),
        lambda: nodes.decode_controller(value, ControllerEpoch(1)),
        lambda: nodes.decode_log_dir_event("/p", value),
        lambda: nodes.decode_controller_epoch(value),
        lambda: nodes.decode_cluster_id(value),
        lambda: nodes.decode_config("/p", value),
        lambda: nodes.decode_producer_id_block(value),
    ):
        with suppress(StorageError):
            decode()


@pytest.mark.parametrize("group_id", [".", "..", "a/b", "%2F", "\u00e9\n\0", "<default>", " "])
def test_groups_of_any_name_have_a_node(group_id: str) -> None:
    path = nodes.group_config_path(group_id)
    name = path.removeprefix(f"{nodes.GROUP_CONFIGS}/")
    assert re.fullmatch(r"[A-Za-z0-9_~%-]+", name)
    assert nodes.group_of(name) == group_id
