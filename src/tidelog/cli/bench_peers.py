"""`tidelog bench peers`: which systems can be measured beside tidelog on this machine."""

import typer

from tidelog.cli.options import JsonOption
from tidelog.cli.output import Cell, print_json, print_line, print_table
from tidelog.lab.peers import (
    PEERS,
    fetch_all,
    is_complete,
    missing_programs,
    why_kafka_is_unavailable,
)


def register(bench: typer.Typer) -> None:
    peers = typer.Typer(help="Show which peers are here, or fetch them.")
    peers.callback(invoke_without_command=True)(show)
    peers.command("fetch")(fetch)
    bench.add_typer(peers, name="peers")


def show(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """Show which peers are here, or fetch them.

    Exit 1 if Apache Kafka cannot be run.
    """
    if context.invoked_subcommand is not None:
        return
    reason = why_kafka_is_unavailable()
    if as_json:
        print_json(
            {
                "peers": [
                    {
                        "name": peer.name,
                        "version": peer.version,
                        "folder": str(peer.folder),
                        "fetched": is_complete(peer.folder),
                    }
                    for peer in PEERS
                ],
                "kafka": reason is None,
                "missing": missing_programs(["java", "mvn"]),
            }
        )
    else:
        _show(reason)
    if reason is not None:
        raise typer.Exit(1)


def _show(reason: str | None) -> None:
    rows: list[list[Cell]] = [
        [
            peer.title,
            peer.version,
            "fetched" if is_complete(peer.folder) else "not fetched",
            str(peer.folder),
        ]
        for peer in PEERS
    ]
    print_table(["PEER", "VERSION", "STATE", "FOLDER"], rows)
    print_line()
    if reason is None:
        print_line("`--peer kafka` measures beside Apache Kafka, with the same client.")
    else:
        print_line(f"No `--peer kafka` yet: {reason}.")
        print_line("`tidelog bench peers fetch` fetches the jars; it needs mvn and java.")


def fetch() -> int:
    """Fetch the jars of Apache Kafka, ZooKeeper and Spark's connector, with mvn and java."""
    return 1 if fetch_all(is_optional=False) else 0
