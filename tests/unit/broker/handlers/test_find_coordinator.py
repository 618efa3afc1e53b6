"""FindCoordinator: every key falls to the one broker there is, at the listener that was asked."""

from typing import Any

import pytest

from tests.unit.broker.served import Client, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, LISTENER
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop
from tidelog.wire.api import ApiKey

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_WITH_MANY_KEYS = 4
NEWEST = 6
Found = tuple[str | None, int, int, str, int]
"""Key, code, node id, host, port."""


def find(client: Client, *keys: str, kind: int = GROUP, version: int = NEWEST) -> list[Found]:
    many = {"coordinator_keys": keys}
    client.send(
        ApiKey.FIND_COORDINATOR,
        version,
        {"key_type": kind, **(many if version >= FIRST_WITH_MANY_KEYS else {"key": keys[0]})},
    )
    (response,) = client.take()
    if version < FIRST_WITH_MANY_KEYS:
        return [_found(None, response)]
    return [_found(one.key, one) for one in response.coordinators]


def _found(key: str | None, answer: Any) -> Found:
    return key, int(answer.error_code), answer.node_id, answer.host, answer.port


def register(served: ServedWorld, broker_id: int, *endpoints: Endpoint) -> None:
    served.world.decide(
        BrokerRegistered(BrokerImage(BrokerId(broker_id), 9, endpoints, None, LastStop.CLEAN))
    )


@in_virtual_time
async def test_every_key_is_answered_in_its_order() -> None:
    async with served_world() as served:
        assert find(served.client(), "a", "b", "a") == [
            (key, 0, BROKER, "localhost", 9092) for key in ("a", "b", "a")
        ]


@pytest.mark.parametrize("version", range(4))
@in_virtual_time
async def test_versions_of_one_key_are_answered(version: int) -> None:
    async with served_world() as served:
        assert find(served.client(), "a", version=version) == [(None, 0, BROKER, "localhost", 9092)]


@pytest.mark.parametrize(
    ("kind", "version", "code"),
    [
        (TRANSACTION, 1, ErrorCode.NONE),
        (TRANSACTION, NEWEST, ErrorCode.NONE),
        (SHARE, NEWEST, ErrorCode.NONE),
        (SHARE, 5, ErrorCode.INVALID_REQUEST),
        (3, NEWEST, ErrorCode.INVALID_REQUEST),
        (-1, NEWEST, ErrorCode.INVALID_REQUEST),
    ],
)
@in_virtual_time
async def test_kinds_of_keys_are_known_from_their_version_on(
    kind: int, version: int, code: ErrorCode
) -> None:
    async with served_world() as served:
        ((_key, found, *_rest),) = find(served.client(), "a", kind=kind, version=version)
        assert found == code


@in_virtual_time
async def test_a_broker_that_has_no_such_listener_is_passed_over() -> None:
    async with served_world() as served:
        register(served, 0, Endpoint("INTERNAL", "PLAINTEXT", "inside", 9))
        assert find(served.client(), "a") == [("a", 0, BROKER, "localhost", 9092)]
        register(served, 0, Endpoint(LISTENER, "PLAINTEXT", "first", 7))
        assert find(served.client(), "a") == [("a", 0, 0, "first", 7)]


@in_virtual_time
async def test_without_brokers_nobody_is_available() -> None:
    async with served_world() as served:
        served.world.decide(BrokerGone(BROKER))
        assert find(served.client(), "a") == [
            ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        ]
