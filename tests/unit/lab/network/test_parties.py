"""Names of parties."""

import pytest

from tidelog.lab.network.errors import NoSuchParty
from tidelog.lab.network.parties import (
    CLIENTS,
    ZOOKEEPER,
    Party,
    broker_party,
    parse_party,
    server_party,
)


@pytest.mark.parametrize("party", [CLIENTS, ZOOKEEPER, broker_party(0), server_party(12)])
def test_party_has_the_name_it_is_written_with(party: Party) -> None:
    assert parse_party(str(party)) == party


@pytest.mark.parametrize(
    "name", ["", "broker", "broker x", "broker 01", "broker -1", "broker 1\n", "client", "Clients"]
)
def test_name_of_nobody_is_refused(name: str) -> None:
    with pytest.raises(NoSuchParty, match="nobody's name"):
        parse_party(name)
