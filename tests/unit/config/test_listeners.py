"""Listeners are parsed, and those that would need encryption or passwords are refused."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.config.listeners import (
    Listener,
    parse_listeners,
    parse_protocol_map,
    require_different_addresses,
)


@pytest.mark.parametrize(
    ("endpoint", "listener"),
    [
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("plaintext://localhost:0", Listener("PLAINTEXT", "localhost", 0)),
        ("IN_1://10.0.0.1:65535", Listener("IN_1", "10.0.0.1", 65_535)),
        ("PLAINTEXT://[::1]:9092", Listener("PLAINTEXT", "::1", 9092)),
    ],
)
def test_an_endpoint_is_a_name_a_host_and_a_port(endpoint: str, listener: Listener) -> None:
    assert parse_listeners("listeners", (endpoint,)) == (listener,)


@pytest.mark.parametrize(
    "endpoint",
    ["localhost:9092", "PLAINTEXT://host", "PLAINTEXT://host:x", "PLAINTEXT://::1:9092", ""],
)
def test_what_is_not_an_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="which is not NAME://host:port"):
        parse_listeners("listeners", (endpoint,))


def test_a_port_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 65535"):
        parse_listeners("listeners", ("PLAINTEXT://h:65536",))


def test_a_name_appears_once() -> None:
    with pytest.raises(ConfigError, match="listeners names the listener A twice"):
        parse_listeners("listeners", ("A://:1", "a://:2"))


def test_a_listener_prints_as_it_was_written() -> None:
    assert str(Listener("A", "::1", 1)) == "A://[::1]:1"
    assert str(Listener("A", "h", 1)) == "A://h:1"


def test_a_protocol_map_is_read_without_regard_to_case() -> None:
    assert parse_protocol_map("m", "a:plaintext, B:SSL,") == {"A": "PLAINTEXT", "B": "SSL"}


@pytest.mark.parametrize("text", ["A", ":SSL"])
def test_a_broken_protocol_map_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="which is not name:protocol"):
        parse_protocol_map("m", text)


@pytest.mark.parametrize(
    "endpoints",
    [
        ("A://:1", "B://:1"),
        ("A://h:1", "B://h:1"),
        ("A://h:1", "B://:2", "C://h:1"),
        ("A://0.0.0.0:1", "B://10.0.0.1:1"),
    ],
)
def test_two_listeners_on_one_port_are_refused(endpoints: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="have the same port"):
        require_different_addresses(parse_listeners("listeners", endpoints))


@pytest.mark.parametrize(
    "endpoints",
    [
        ("A://:1", "B://:2"),
        ("A://:0", "B://:0"),
        ("A://10.0.0.1:1", "B://10.0.0.2:1"),
        ("A://0.0.0.0:1", "B://[::]:1"),
    ],
)
def test_listeners_that_can_all_be_reached_are_taken(endpoints: tuple[str, ...]) -> None:
    require_different_addresses(parse_listeners("listeners", endpoints))
