"""What the commands on single brokers of a local cluster share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tidelog.cli.output import listed
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder, default_data_folder
from tidelog.lab.running import find_brokers
from tidelog.lab.state import BrokerState

BrokersArgument: TypeAlias = Annotated[
    list[int],
    typer.Argument(metavar="BROKER...", min=1, help="Numbers of brokers.", show_default=False),
]


def cluster_folder(data: Path | None) -> ClusterFolder:
    """The folder that was named, or the one that is used when none is."""
    return ClusterFolder((data or default_data_folder()).expanduser().absolute())


def broker_names(brokers: Sequence[BrokerState]) -> str:
    """`broker 1`, `brokers 1 and 2`."""
    return f"broker{'s' if len(brokers) > 1 else ''} {listed([broker.id for broker in brokers])}"


def running_of(folder: ClusterFolder, broker_ids: Sequence[int]) -> tuple[BrokerState, ...]:
    """The brokers of these numbers; LabError unless all of them run."""
    brokers = find_brokers(folder, list(dict.fromkeys(broker_ids)))
    for broker in brokers:
        if not broker.is_alive:
            raise LabError(f"broker {broker.id} is not running")
    return brokers
