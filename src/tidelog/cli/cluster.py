"""`tidelog cluster`: the cluster's id, its brokers, its controller and their log dirs."""

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import print_json, print_line, print_table, size_text
from tidelog.cli.partitions import PartitionCounts, count_partitions
from tidelog.client.admin import Admin
from tidelog.client.values import ClusterDescription, LogDirDescription


def register(app: typer.Typer) -> None:
    app.command("cluster", rich_help_panel=Panel.CLUSTER)(run)


def run(*, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, as_json: JsonOption = False) -> int:
    """Show the cluster's id, controller, brokers with what they hold, and log dirs.

    Exit 0 if there is a controller, every log dir is online and every partition has a leader, 1 if
    not.
    """
    with Admin(bootstrap) as admin:
        cluster = admin.describe_cluster()
        counts = count_partitions(admin.describe_topics(admin.topic_names()))
        log_dirs = admin.log_dirs()
    if as_json:
        print_json(_as_json(cluster, counts, log_dirs))
    else:
        _print_text(cluster, counts, log_dirs)
    is_healthy = (
        cluster.controller_id is not None
        and not counts.offline
        and all(log_dir.error is None for log_dir in log_dirs)
    )
    return 0 if is_healthy else 1


def _as_json(
    cluster: ClusterDescription, counts: PartitionCounts, log_dirs: tuple[LogDirDescription, ...]
) -> dict[str, object]:
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        **counts.as_json(),
        "brokers": [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.id == cluster.controller_id,
                "leads": counts.leads[broker.id],
                "replicas": counts.replicas[broker.id],
            }
            for broker in cluster.brokers
        ],
        "log_dirs": [
            {
                "broker": log_dir.broker_id,
                "path": log_dir.path,
                "error": log_dir.error,
                "partitions": len(log_dir.replicas),
                "size_bytes": log_dir.size_bytes,
                "usable_bytes": log_dir.usable_bytes,
                "total_bytes": log_dir.total_bytes,
            }
            for log_dir in log_dirs
        ],
    }


def _print_text(
    cluster: ClusterDescription, counts: PartitionCounts, log_dirs: tuple[LogDirDescription, ...]
) -> None:
    print_line(f"cluster      {cluster.cluster_id}")
    print_line(f"controller   {'-' if cluster.controller_id is None else cluster.controller_id}")
    print_line(f"topics       {counts.sentence}")
    print_line()
    print_table(
        ["BROKER", "HOST", "PORT", "RACK", "LEADS", "REPLICAS"],
        [
            [
                broker.id,
                broker.host,
                broker.port,
                broker.rack,
                counts.leads[broker.id],
                counts.replicas[broker.id],
            ]
            for broker in cluster.brokers
        ],
    )
    print_line()
    print_table(
        ["BROKER", "LOG DIR", "STATE", "PARTITIONS", "SIZE", "FREE"],
        [
            [
                log_dir.broker_id,
                log_dir.path,
                log_dir.error or "online",
                len(log_dir.replicas),
                size_text(log_dir.size_bytes),
                None if log_dir.usable_bytes is None else size_text(log_dir.usable_bytes),
            ]
            for log_dir in log_dirs
        ],
    )
