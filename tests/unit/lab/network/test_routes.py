"""The file that says where a network listens."""

import json
from pathlib import Path

import pytest

from tidelog.lab.network.errors import NetworkError
from tidelog.lab.network.parties import ZOOKEEPER, broker_party
from tidelog.lab.network.routes import Route, read_routes, write_routes

ROUTES = (
    Route(port=12_001, target_host="127.0.0.1", target_port=9_092, party=broker_party(1)),
    Route(port=12_002, target_host="::1", target_port=2_181, party=ZOOKEEPER),
)


def test_routes_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_routes(tmp_path / "network.json", ROUTES)
    assert read_routes(tmp_path / "network.json") == ROUTES
    assert [path.name for path in tmp_path.iterdir()] == ["network.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"routes": []},
        {"routes": [{"port": 1}]},
        {"routes": None},
        *(
            {
                "routes": [
                    {"port": 1, "target_host": "a", "target_port": 1, "party": "clients"} | one
                ]
            }
            for one in ({"port": 0}, {"port": 65_536}, {"target_port": "1"}, {"party": "me"})
        ),
        {"routes": [{"port": 1, "target_host": "a", "target_port": 1, "party": "clients"}] * 2},
    ],
)
def test_file_that_says_something_else_is_refused_by_name(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "network.json"
    write_routes(path, ROUTES)
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), encoding="utf-8")
    with pytest.raises(NetworkError, match=r"network\.json|nobody's name"):
        read_routes(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null"])
def test_file_that_is_damaged_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "network.json").write_bytes(content)
    with pytest.raises(NetworkError, match=r"network\.json"):
        read_routes(tmp_path / "network.json")


def test_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"network\.json"):
        read_routes(tmp_path / "network.json")
