"""Whoever started brokers leaves a note that others can trust or refuse."""

import os
from pathlib import Path

import pytest

from tidelog.lab.errors import LabError
from tidelog.lab.processes import identify
from tidelog.lab.state import BrokerState, read_state, write_state


def broker(**changes: object) -> BrokerState:
    me = identify(os.getpid())
    assert me is not None
    fields: dict[str, object] = {
        "id": 1,
        "host": "127.0.0.1",
        "port": 9092,
        "pid": me.pid,
        "start_mark": me.start_mark,
        "started_ms": 1_741_000_000_000,
    }
    return BrokerState(**{**fields, **changes})  # type: ignore[arg-type]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    brokers = (broker(), broker(id=2, port=9093))
    write_state(tmp_path / "cluster.json", brokers)
    assert read_state(tmp_path / "cluster.json") == brokers


def test_no_file_means_no_broker(tmp_path: Path) -> None:
    assert read_state(tmp_path / "cluster.json") == ()


def test_writing_leaves_nothing_but_the_file(tmp_path: Path) -> None:
    write_state(tmp_path / "cluster.json", ())
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"version": 2, "brokers": []}', '{"version": 1, "brokers": [{}]}'],
)
def test_file_of_somebody_else_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(content)
    with pytest.raises(LabError, match=r"cluster\.json"):
        read_state(path)


def test_broker_is_alive_while_its_process_runs() -> None:
    assert broker().is_alive
    assert not broker(start_mark="another start").is_alive


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:9092"),
        ("0.0.0.0", "127.0.0.1:9092"),
        ("", "127.0.0.1:9092"),
        ("::1", "[::1]:9092"),
    ],
)
def test_address_is_one_that_this_machine_can_reach(host: str, address: str) -> None:
    assert broker(host=host).address == address
