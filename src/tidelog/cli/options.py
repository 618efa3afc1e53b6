"""Options that several commands share, declared once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tidelog.client.bootstrap import DEFAULT_BOOTSTRAP

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "BootstrapOption",
    "Coordination",
    "CoordinationOption",
    "DataOption",
    "JsonOption",
    "Panel",
    "SetOption",
]


class Panel(StrEnum):
    """Where a command stands on the help page."""

    LOCAL = "A cluster on this machine"
    SERVER = "On a server"
    RECORDS = "Records"
    CLUSTER = "Any cluster"


class Coordination(StrEnum):
    """Who keeps the cluster of a lab together."""

    SQLITE = "sqlite"
    ZOOKEEPER = "zookeeper"


BootstrapOption: TypeAlias = Annotated[
    str,
    typer.Option(metavar="HOST:PORT,...", envvar="TIDELOG_BOOTSTRAP", help="Brokers to ask first."),
]

CoordinationOption: TypeAlias = Annotated[
    Coordination, typer.Option(help="A file, or a ZooKeeper ensemble of three.")
]

DataOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="TIDELOG_DATA",
        help="Data folder of the cluster.",
        show_default="~/.local/share/tidelog",
    ),
]

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

SetOption: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A broker setting under Kafka's name; may be repeated.",
    ),
]
