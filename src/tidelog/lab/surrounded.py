"""A cluster started with a network that can be cut and with disks that can be filled, or without.

Brokers advertise the ports that people know, which are their proxies'; ZooKeeper's servers, if they
use those, are behind proxies as well.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from tidelog.lab.cluster import start_cluster
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.routes import Route
from tidelog.lab.plan import ZOOKEEPER, ClusterPlan
from tidelog.lab.proxied import ProxiedPorts, server_routes
from tidelog.lab.running import end_leftovers
from tidelog.lab.starting import Patience, StartedBroker
from tidelog.lab.surroundings import Surroundings, surround


def start_surrounded(
    folder: ClusterFolder,
    plan: ClusterPlan,
    patience: Patience,
    *,
    has_network: bool,
    disk_mib: int | None,
) -> tuple[StartedBroker, ...]:
    """As `start_cluster`, with what is asked for around the brokers; it ends with them."""
    routes: Sequence[Route] = ()
    if has_network:
        plan, routes = behind_proxies(plan)
    wanted = Surroundings(routes, disk_mib)
    return start_cluster(
        folder,
        plan,
        patience,
        begin_beside=lambda: surround(folder, plan.broker_ids, wanted),
        end_beside=lambda: end_leftovers(folder),
    )


def behind_proxies(plan: ClusterPlan) -> tuple[ClusterPlan, list[Route]]:
    """The same cluster with proxies where its brokers would be, and where those lead."""
    ports = ProxiedPorts.choose(plan.broker_ids, first_advertised=plan.port)
    routes = ports.routes()
    coordination = plan.coordination
    kind, _, place = coordination.partition(":")
    if kind == ZOOKEEPER:
        hosts, slash, chroot = place.partition("/")
        to_servers, proxies = server_routes(hosts, itertools.count(1))
        routes += to_servers
        coordination = f"{ZOOKEEPER}:{proxies}{slash}{chroot}"
    return (
        replace(
            plan,
            coordination=coordination,
            listening_ports=ports.listening,
            advertised_ports=ports.advertised,
        ),
        routes,
    )
