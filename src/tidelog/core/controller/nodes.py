"""Kafka's layout of the coordinator's tree (C2): where a fact lies and what its bytes are.

    /cluster/id                                  {"version":"1","id":...}
    /controller                    ephemeral     {"version":1,"brokerid":...,"timestamp":...}, token
    /controller_epoch                            a number in digits
    /brokers/ids/<id>              ephemeral     version 5: endpoints, rack; how it stopped before
    /brokers/generation                          empty; set by every registration of a broker
    /brokers/topics/<t>                          version 3: topic id, replicas of each partition
    /brokers/topics/<t>/partitions/<p>/state     leader, leader epoch, isr, controller epoch
    /brokers/seqid                               empty
    /config/topics/<t>  /config/brokers/<id>  /config/clients/<c>      settings; <default> is all
    /config/groups/<g>                           the same of groups, their ids percent-encoded
    /config/changes/config_change_<n>            which settings changed
    /admin/delete_topics/<t>                     empty: this topic is being deleted
    /log_dir_event_notification/log_dir_event_<n>   a broker lost a log directory or got it back
    /latest_producer_id_block                    the ids that were handed out last

Whoever reads a node does not trust it: the tree is a file or a server, and other programs can write
to it. What cannot be understood is a StorageError that names the node. Unknown fields are passed
over, as Kafka does.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote
from uuid import UUID

from tidelog.base.errors import StorageError
from tidelog.base.ids import NO_BROKER, BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from tidelog.core.controller.image import (
    BrokerImage,
    Endpoint,
    LastStop,
    PartitionImage,
    TopicImage,
)

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_GENERATION = "/brokers/generation"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CLIENT_CONFIGS = "/config/clients"
GROUP_CONFIGS = "/config/groups"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

PERSISTENT_PATHS = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    BROKER_GENERATION,
    TOPICS,
    "/brokers/seqid",
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    GROUP_CONFIGS,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
)
"""What is there in every cluster, parents before their children."""

DEFAULT_ENTITY = "<default>"
NO_TOKEN = bytes(16)
TOKEN_BYTES = 16
NO_CONTROLLER_YET = b"0"
CONFIG_CHANGE_PREFIX = "config_change_"

_CONFIG_CHANGE = re.compile(rf"{CONFIG_CHANGE_PREFIX}([0-9]{{10}})")
_ENDPOINT = re.compile(r"([A-Za-z0-9_]+)://(?:\[([^\]/]+)\]|([^:/\[\]]*)):([0-9]{1,5})")


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def deletion_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker_id: BrokerId | None) -> str:
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def client_config_path(client: str) -> str:
    return f"{CLIENT_CONFIGS}/{client}"


def group_config_path(group_id: str) -> str:
    """Ids of groups may have any character; the tree does not take all of them."""
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='').replace('.', '%2E')}"


def group_of(name: str) -> str:
    """The group whose settings are in the child `name` of GROUP_CONFIGS."""
    return unquote(name)


def log_dir_event_path(broker_id: BrokerId, number: int) -> str:
    return f"{LOG_DIR_EVENTS}/log_dir_event_{broker_id}_{number}"


def encode_log_dir_event(broker_id: BrokerId) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, value: bytes) -> BrokerId:
    return BrokerId(_Fields.decode(path, value).integer("broker"))


def config_change_path(number: int) -> str:
    return f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}{number:010}"


def encode_uuid(value: UUID) -> str:
    """An id the way Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(path: str, text: str) -> UUID:
    try:
        return UUID(bytes=base64.b64decode(f"{text}==".encode(), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error) as error:
        raise StorageError(f"{path} holds '{text}', which is not an id: {error}") from None


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(value: bytes) -> str:
    return _Fields.decode(CLUSTER_ID, value).text("id")


@dataclass(frozen=True, slots=True)
class ControllerClaim:
    """Who is controller, in which epoch, and what it shows to those it speaks to."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    token: bytes


def encode_controller(broker_id: BrokerId, *, token: bytes, now_ms: int) -> bytes:
    return _encode(
        {
            "version": 1,
            "brokerid": broker_id,
            "timestamp": str(now_ms),
            "tidelog": {"token": token.hex()},
        }
    )


def decode_controller(value: bytes, epoch: ControllerEpoch) -> ControllerClaim:
    fields = _Fields.decode(CONTROLLER, value)
    found = fields.optional_mapping("tidelog").get("token", NO_TOKEN.hex())
    try:
        token = bytes.fromhex(str(found))
    except ValueError:
        raise fields.wrong("token", found, "hexadecimal digits") from None
    return ControllerClaim(BrokerId(fields.integer("brokerid")), epoch, token)


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(value: bytes) -> ControllerEpoch:
    if not value.isdigit() or len(value) > 10:
        raise StorageError(f"{CONTROLLER_EPOCH} holds {value[:20]!r}, which is not an epoch")
    return ControllerEpoch(int(value))


def encode_broker(broker: BrokerImage, *, now_ms: int) -> bytes:
    first = broker.endpoints[0]
    return _encode(
        {
            "version": 5,
            "host": first.host,
            "port": first.port,
            "jmx_port": -1,
            "timestamp": str(now_ms),
            "endpoints": [_encode_endpoint(endpoint) for endpoint in broker.endpoints],
            "listener_security_protocol_map": {
                endpoint.listener: endpoint.security_protocol for endpoint in broker.endpoints
            },
            "rack": broker.rack,
            "features": {},
            "tidelog": {"last_stop": broker.stop.value},
        }
    )


def decode_broker(broker_id: BrokerId, value: bytes, *, broker_epoch: int) -> BrokerImage:
    fields = _Fields.decode(broker_path(broker_id), value)
    protocols = fields.mapping("listener_security_protocol_map")
    endpoints = tuple(
        _decode_endpoint(fields, endpoint, protocols) for endpoint in fields.texts("endpoints")
    )
    return BrokerImage(
        broker_id, broker_epoch, endpoints, fields.optional_text("rack"), _decode_stop(fields)
    )


def _decode_stop(fields: "_Fields") -> LastStop:
    found = fields.optional_mapping("tidelog").get("last_stop")
    if found is None:
        return LastStop.LOST  # Nobody vouches for it.
    try:
        return LastStop(found)
    except ValueError:
        raise fields.wrong("last_stop", found, "clean, killed or lost") from None


def _encode_endpoint(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _decode_endpoint(fields: "_Fields", text: str, protocols: Mapping[str, object]) -> Endpoint:
    found = _ENDPOINT.fullmatch(text)
    if found is None:
        raise fields.wrong("endpoints", text, "listener://host:port")
    listener, bracketed, plain, port = found.groups()
    return Endpoint(listener, str(protocols.get(listener, listener)), bracketed or plain, int(port))


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """What the node of a topic holds: the number of a partition is its position."""

    topic_id: TopicId
    replicas: tuple[tuple[BrokerId, ...], ...]
    adding_replicas: Mapping[int, tuple[BrokerId, ...]]
    removing_replicas: Mapping[int, tuple[BrokerId, ...]]


def encode_topic(topic: TopicImage) -> bytes:
    partitions = list(enumerate(topic.partitions))
    return _encode(
        {
            "version": 3,
            "topic_id": encode_uuid(topic.topic_id),
            "partitions": {str(number): each.replicas for number, each in partitions},
            "adding_replicas": {
                str(number): each.adding_replicas
                for number, each in partitions
                if each.adding_replicas
            },
            "removing_replicas": {
                str(number): each.removing_replicas
                for number, each in partitions
                if each.removing_replicas
            },
        }
    )


def decode_topic(topic: str, value: bytes) -> TopicAssignment:
    fields = _Fields.decode(topic_path(topic), value)
    replicas = fields.replicas_by_partition("partitions")
    if not replicas or sorted(replicas) != list(range(len(replicas))):
        raise fields.wrong("partitions", sorted(replicas), "numbers from 0 without a gap")
    for each in replicas.values():
        if not each or len(set(each)) < len(each):
            raise fields.wrong("partitions", each, "replicas, each once")
    adding = fields.replicas_by_partition("adding_replicas")
    removing = fields.replicas_by_partition("removing_replicas")
    for number, each in replicas.items():
        moving = [*adding.get(number, ()), *removing.get(number, ())]
        if len(set(moving)) < len(moving) or not set(moving) <= set(each):
            raise fields.wrong("adding_replicas", moving, f"with removing_replicas, some of {each}")
    return TopicAssignment(
        TopicId(decode_uuid(fields.path, fields.text("topic_id"))),
        tuple(replicas[number] for number in range(len(replicas))),
        adding,
        removing,
    )


def encode_state(state: PartitionImage, controller_epoch: ControllerEpoch) -> bytes:
    return _encode(
        {
            "controller_epoch": controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
        }
    )


def decode_state(
    topic: str, partition: int, assignment: TopicAssignment, value: bytes, *, version: int
) -> PartitionImage:
    """What the state node and the topic's node say of one partition together."""
    fields = _Fields.decode(state_path(topic, partition), value)
    replicas = assignment.replicas[partition]
    isr = tuple(BrokerId(each) for each in fields.integers("isr"))
    if not isr or len(set(isr)) < len(isr) or not set(isr) <= set(replicas):
        raise fields.wrong("isr", list(isr), f"some of {list(replicas)}, each once")
    leader = BrokerId(fields.integer("leader"))
    if leader != NO_BROKER and leader not in isr:
        raise fields.wrong("leader", leader, f"-1 or one of the isr {list(isr)}")
    return PartitionImage(
        leader=leader,
        leader_epoch=LeaderEpoch(fields.integer("leader_epoch")),
        replicas=replicas,
        isr=isr,
        adding_replicas=assignment.adding_replicas.get(partition, ()),
        removing_replicas=assignment.removing_replicas.get(partition, ()),
        partition_epoch=version,
    )


def encode_config(settings: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(settings)})


def decode_config(path: str, value: bytes) -> dict[str, str]:
    fields = _Fields.decode(path, value)
    settings = fields.mapping("config")
    for setting in settings.values():
        if not isinstance(setting, str):
            raise fields.wrong("config", setting, "text")
    return {name: str(setting) for name, setting in settings.items()}


def encode_config_change(config_path: str) -> bytes:
    return _encode({"version": 2, "entity_path": config_path.removeprefix("/config/")})


def config_change_number(name: str) -> int | None:
    """The number in the name of a child of CONFIG_CHANGES; None if it is not one of ours."""
    found = _CONFIG_CHANGE.fullmatch(name)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids `[first_id, end_id)`, handed to one broker for good."""

    broker_id: BrokerId
    first_id: int
    end_id: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _encode(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first_id),
            "block_end": str(block.end_id - 1),
        }
    )


def decode_producer_id_block(value: bytes) -> ProducerIdBlock | None:
    """None if no block has been handed out yet."""
    if not value:
        return None
    fields = _Fields.decode(PRODUCER_ID_BLOCK, value)
    return ProducerIdBlock(
        BrokerId(fields.integer("broker")),
        fields.digits("block_start"),
        fields.digits("block_end") + 1,
    )


def _encode(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


class _Fields:
    """The fields of one node; what is missing or of the wrong type is named with its node."""

    def __init__(self, path: str, fields: Mapping[str, object]) -> None:
        self.path = path
        self._fields = fields

    @classmethod
    def decode(cls, path: str, value: bytes) -> "_Fields":
        try:
            fields: object = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{path} is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise StorageError(f"{path} is not a JSON object")
        return cls(path, fields)

    def wrong(self, name: str, found: object, expected: str) -> StorageError:
        return StorageError(f"{self.path}: {name} is {found!r:.80}, expected {expected}")

    def integer(self, name: str) -> int:
        found = self._fields.get(name)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.wrong(name, found, "a whole number")
        return found

    def text(self, name: str) -> str:
        found = self._fields.get(name)
        if not isinstance(found, str):
            raise self.wrong(name, found, "text")
        return found

    def optional_text(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def digits(self, name: str) -> int:
        found = self.text(name)
        if not found.isdecimal() or len(found) > 19:
            raise self.wrong(name, found, "a number in digits")
        return int(found)

    def mapping(self, name: str) -> dict[str, object]:
        found = self._fields.get(name)
        if not isinstance(found, dict):
            raise self.wrong(name, found, "an object")
        return found

    def optional_mapping(self, name: str) -> dict[str, object]:
        return {} if self._fields.get(name) is None else self.mapping(name)

    def texts(self, name: str) -> list[str]:
        found = self._fields.get(name)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.wrong(name, found, "a list of texts")
        return found

    def integers(self, name: str) -> list[int]:
        return self._integers(name, self._fields.get(name))

    def replicas_by_partition(self, name: str) -> dict[int, tuple[BrokerId, ...]]:
        return {
            self._partition(name, number): tuple(
                BrokerId(each) for each in self._integers(name, replicas)
            )
            for number, replicas in self.mapping(name).items()
        }

    def _partition(self, name: str, number: str) -> int:
        if not number.isdecimal() or len(number) > 10:
            raise self.wrong(name, number, "numbers of partitions")
        return int(number)

    def _integers(self, name: str, found: object) -> list[int]:
        if not isinstance(found, list) or not all(type(each) is int for each in found):
            raise self.wrong(name, found, "a list of whole numbers")
        return found
