"""An address list is understood or refused by name."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.client.bootstrap import Address, parse_bootstrap, require_reachable
from tidelog.client.errors import ClusterUnreachable


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("127.0.0.1:9092", (Address("127.0.0.1", 9092),)),
        ("a:1, b:2", (Address("a", 1), Address("b", 2))),
        ("[::1]:9092", (Address("::1", 9092),)),
    ],
)
def test_addresses_are_read(text: str, addresses: tuple[Address, ...]) -> None:
    assert parse_bootstrap(text) == addresses
    assert ",".join(map(str, addresses)) == text.replace(" ", "")


@pytest.mark.parametrize(
    "text", ["", "a", ":9092", "a:", "a:x", "a:0", "a:70000", "a:1,", "a:-1", "a:" + "9" * 5000]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap is"):
        parse_bootstrap(text)


def test_refused_connection_is_said_at_once() -> None:
    with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1 \(Connection refused\)"):
        require_reachable("127.0.0.1:1", timeout_s=5)


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "\udcff"])
def test_host_that_no_name_server_could_know_is_refused(host: str) -> None:
    with pytest.raises(ClusterUnreachable, match="not the name of a host"):
        require_reachable(f"{host}:9092", timeout_s=5)
