"""Plays the members of a group to tidelog and to Kafka at once, and compares what they are told.

Both make ids of members by chance, so a story calls members by names: `{ann}` in a request stands
for the id that the broker gave, and in answers the id is put back to the name. Times, addresses and
texts meant for people are left out.
"""

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from functools import partial
from pprint import pformat
from uuid import UUID

from kio.static.protocol import Payload

from tests.support.kio_codec import Values
from tests.support.raw_client import RawClient
from tests.support.server_process import wait_until
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey

NOT_COMPARED = {"throttle_time", "error_message", "client_host"}
TOPIC = "grouped"


class Side:
    """One broker, a connection for each member, and what it calls them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: dict[str, RawClient] = {}
        self.ids: dict[str, str] = {}
        self.topic_id: UUID | None = None

    def close(self) -> None:
        for client in self._clients.values():
            client.__exit__(None, None, None)

    def client(self, name: str) -> RawClient:
        if name not in self._clients:
            self._clients[name] = RawClient(self._port)
        return self._clients[name]

    def send(self, who: str, api_key: ApiKey, version: int, values: Values) -> Payload:
        spoken = self._spoken(values)
        assert isinstance(spoken, dict)
        return self.client(who).begin(api_key, version, spoken)

    def receive(self, who: str, request: Payload, *, learn: bool) -> object:
        answer = dataclasses.asdict(self.client(who).answer_to(request))
        if learn and answer.get("member_id"):
            self.ids[who] = answer["member_id"]
        return self._heard(answer)

    def _spoken(self, value: object) -> object:
        if isinstance(value, str):
            for name, member_id in self.ids.items():
                value = value.replace("{" + name + "}", member_id)
            return value
        if value is TOPIC_ID:
            return self.topic_id
        if isinstance(value, dict):
            return {key: self._spoken(inner) for key, inner in value.items()}
        if isinstance(value, tuple | list):
            return tuple(self._spoken(inner) for inner in value)
        return value

    def _heard(self, value: object) -> object:
        match value:
            case dict():
                kept = {key: inner for key, inner in value.items() if key not in NOT_COMPARED}
                heard: object = {key: self._heard(inner) for key, inner in kept.items()}
            case tuple() | list():
                heard = sorted((self._heard(inner) for inner in value), key=repr)
            case Enum():
                heard = value.name
            case UUID():
                heard = "topic id" if value == self.topic_id else str(value)
            case str():
                heard = self._by_name(value)
            case _:
                heard = value
        return heard

    def _by_name(self, text: str) -> str:
        for name, member_id in self.ids.items():
            text = text.replace(member_id, "{" + name + "}")
        return text


class _TopicId:
    """Stands for the id of TOPIC, which the brokers made by chance."""


TOPIC_ID = _TopicId()


class GroupPair:
    """Both brokers. Every method fails if they disagree, and returns what both said."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._sides = [Side(port) for port in ports]
        self._sent: dict[str, list[Payload]] = {}

    def close(self) -> None:
        for side in self._sides:
            side.close()

    def prepare(self) -> None:
        """A topic of two partitions, and a coordinator, on both."""
        for side in self._sides:
            client = side.client("anybody")
            create = {
                "topics": (
                    {
                        "name": TOPIC,
                        "num_partitions": 2,
                        "replication_factor": 1,
                        "assignments": (),
                        "configs": (),
                    },
                ),
                "timeout": timedelta(seconds=30),
                "validate_only": False,
            }
            client.request(ApiKey.CREATE_TOPICS, 7, create)
            side.topic_id = client.topic(TOPIC).id
            wait_until(partial(_is_served, client), within_s=60, what="a coordinator")

    def ask(
        self, api_key: ApiKey, version: int, values: Values, *, who: str = "anybody"
    ) -> dict[str, object]:
        self.send(api_key, version, values, who=who)
        return self.receive(who)

    def until(
        self, expected: str, api_key: ApiKey, version: int, values: Values, *, who: str = "anybody"
    ) -> None:
        """Wait until both answer with the code `expected`: a request on its way has arrived."""
        for side in self._sides:

            def is_there(side: Side = side) -> bool:
                request = side.send(who, api_key, version, values)
                answer = side.receive(who, request, learn=False)
                return isinstance(answer, dict) and answer["error_code"] == expected

            wait_until(is_there, within_s=10, what=expected)

    def send(self, api_key: ApiKey, version: int, values: Values, *, who: str) -> None:
        self._sent[who] = [side.send(who, api_key, version, values) for side in self._sides]

    def receive(self, who: str) -> dict[str, object]:
        requests = self._sent.pop(who)
        learn = int(type(requests[0]).__api_key__) == int(ApiKey.JOIN_GROUP)
        ours, theirs = (
            side.receive(who, request, learn=learn)
            for side, request in zip(self._sides, requests, strict=True)
        )
        assert ours == theirs, (
            f"asked {requests[0]}\nours:\n{pformat(ours)}\nKafka's:\n{pformat(theirs)}"
        )
        assert isinstance(ours, dict)
        return ours


def _is_served(client: RawClient) -> bool:
    client.request(ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": ("g",)})
    described = client.request(
        ApiKey.DESCRIBE_GROUPS, 6, {"groups": ("g",), "include_authorized_operations": False}
    )
    return bool(described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND)
