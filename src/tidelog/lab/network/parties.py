"""Who takes part in a local cluster's network: each broker, each coordinator, and all its clients.

A party is known by the name that people use for it: `broker 1`, `server 2` (of ZooKeeper),
`zookeeper` (all servers, where nobody tells them apart), `clients`. A controller of Kafka's that
is the same process as a broker is the same party.
"""

import re
from typing import Final, NewType

from tidelog.lab.network.errors import NoSuchParty

Party = NewType("Party", str)

CLIENTS: Final = Party("clients")
ZOOKEEPER: Final = Party("zookeeper")
_NAME: Final = re.compile(r"clients|zookeeper|(broker|server) (0|[1-9][0-9]{0,9})")


def broker_party(broker_id: int) -> Party:
    assert broker_id >= 0
    return Party(f"broker {broker_id}")


def server_party(server_id: int) -> Party:
    assert server_id >= 0
    return Party(f"server {server_id}")


def is_server(party: Party) -> bool:
    """Whether it is a server of ZooKeeper, or all of them."""
    return party == ZOOKEEPER or party.startswith("server ")


def parse_party(name: str) -> Party:
    """The party of that name; NoSuchParty if it cannot be one's."""
    if _NAME.fullmatch(name) is None:
        raise NoSuchParty(
            f"'{name}' is nobody's name: parties are 'broker 1', 'server 1', 'clients', 'zookeeper'"
        )
    return Party(name)
