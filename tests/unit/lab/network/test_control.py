"""What is said to a network and what it answers."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.lab.network import control
from tidelog.lab.network.control import (
    AddRoute,
    AskStatus,
    Command,
    Cut,
    Heal,
    HealAll,
    RemoveRoutes,
    Slow,
    Stop,
)
from tidelog.lab.network.errors import CommandRefused, NetworkDied
from tidelog.lab.network.links import DELAY_MAX_MS
from tidelog.lab.network.parties import CLIENTS, ZOOKEEPER, broker_party
from tidelog.lab.network.routes import Route
from tidelog.lab.network.status import LinkStatus, NetworkStatus, PairStatus
from tidelog.lab.processes import ProcessIdentity

ONE, TWO = broker_party(1), broker_party(2)


@pytest.mark.parametrize(
    "command",
    [
        Cut((ONE,), (TWO, CLIENTS)),
        Slow((ONE, TWO), (ZOOKEEPER,), 200),
        Heal((ONE,), (TWO,)),
        HealAll(),
        AddRoute(Route(port=1, target_host="127.0.0.1", target_port=2, party=ONE)),
        RemoveRoutes(ONE),
        AskStatus(),
        Stop(),
    ],
)
def test_command_is_understood_as_it_was_meant(command: Command) -> None:
    line = control.encode_command(command)
    assert line.count(b"\n") == 1
    assert control.decode_command(line) == command


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "None is no command"),
        ({"command": "explode"}, "'explode' is no command"),
        ({"command": ["cut"]}, "no command"),
        ({"command": "cut"}, "'these' has to be a list"),
        ({"command": "cut", "these": ["broker 1"]}, "'those' has to be a list"),
        ({"command": "cut", "these": [], "those": ["clients"]}, "'these' has to be a list"),
        ({"command": "cut", "these": "clients", "those": ["broker 1"]}, "'these' has to be"),
        ({"command": "cut", "these": [1], "those": ["broker 1"]}, "no party's name"),
        ({"command": "cut", "these": ["me"], "those": ["broker 1"]}, "'me' is nobody's name"),
        ({"command": "cut", "these": ["broker 1"], "those": ["broker 1"]}, "both sides"),
        ({"command": "heal", "these": ["broker 1"]}, "'those' has to be a list"),
        ({"command": "add"}, "'route' is none"),
        ({"command": "add", "route": {"port": 1}}, "'route' is none: KeyError"),
        (
            {
                "command": "add",
                "route": {"port": 0, "target_host": "a", "target_port": 1, "party": "broker 1"},
            },
            "0 is no port",
        ),
        ({"command": "remove"}, "None is no party's name"),
        ({"command": "remove", "party": "me"}, "'me' is nobody's name"),
        *(
            ({"command": "slow", "these": ["broker 1"], "those": ["clients"], "delay_ms": ms}, "ms")
            for ms in (None, True, -1, DELAY_MAX_MS + 1, 1.5, "1")
        ),
    ],
)
def test_command_that_makes_no_sense_is_refused_with_a_reason(
    content: dict[str, object], reason: str
) -> None:
    with pytest.raises(CommandRefused, match=reason):
        control.decode_command(json.dumps(content).encode())


@pytest.mark.parametrize("line", [b"", b"cut", b"[]", b"1", b"\xff\xfe", b"[" * 60_000, b"{}}"])
def test_line_that_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(CommandRefused):
        control.decode_command(line)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_are_refused(line: bytes) -> None:
    with suppress(CommandRefused):
        control.decode_command(line)


STATUS = NetworkStatus(
    process=ProcessIdentity(17, "then"),
    routes=(Route(port=1, target_host="127.0.0.1", target_port=2, party=ONE),),
    links=(LinkStatus(a=ONE, b=TWO, is_cut=True, delay_ms=3),),
    pairs=(
        PairStatus(
            caller=CLIENTS,
            target=ONE,
            open_count=1,
            waiting_count=2,
            sent_bytes=3,
            received_bytes=4,
        ),
    ),
    refused_count=5,
)


def test_status_is_read_as_it_was_written() -> None:
    assert control.decode_status(control.encode_status(STATUS)) == STATUS


def test_refusal_is_raised_where_it_is_read() -> None:
    control.decode_done(control.encode_done())
    with pytest.raises(CommandRefused, match="not today"):
        control.decode_done(control.encode_refusal("not today"))
    with pytest.raises(CommandRefused, match="not today"):
        control.decode_status(control.encode_refusal("not today"))


@pytest.mark.parametrize("line", [b"", b'{"ok": true}', b'{"ok": true, "status": 1}'])
def test_answer_that_is_none_is_not_taken_for_one(line: bytes) -> None:
    with pytest.raises(NetworkDied):
        control.decode_status(line)
