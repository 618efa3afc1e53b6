"""Real brokers for tests: a cluster in about a second, killed, paused and cut off at will (O4).

    import tidelog.testing

    with tidelog.testing.cluster(3) as cluster:
        topic = cluster.create_topic(partitions=3)
        cluster.kill_broker(cluster.leader_of(topic))
        ...

Under pytest the fixtures `tidelog_broker`, `tidelog_cluster` and `tidelog_topic` are there without
an import (`plugin.py`); unittest and plain code use the functions here. Examples: docs/testing.md.

Names are loaded when they are asked for: pytest imports this package whenever it starts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.cluster_records import StoredRecord as StoredRecord
    from tidelog.testing.network import CLIENTS as CLIENTS
    from tidelog.testing.running import Broker as Broker
    from tidelog.testing.running import Cluster as Cluster
    from tidelog.testing.starting import broker as broker
    from tidelog.testing.starting import cluster as cluster

__all__ = ["CLIENTS", "Broker", "Cluster", "StoredRecord", "broker", "cluster"]

_HOMES = {
    "CLIENTS": "network",
    "Broker": "running",
    "Cluster": "running",
    "StoredRecord": "cluster_records",
    "broker": "starting",
    "cluster": "starting",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
