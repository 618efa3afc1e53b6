"""What can be wrong with the network of a local cluster, or with what is asked of it."""

from pathlib import Path

from tidelog.lab.errors import LabError


class NetworkError(LabError):
    """The network of a local cluster is not there, or cannot do what was asked."""


class NoNetwork(NetworkError):
    """Nobody runs a network in the cluster's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"no network runs in {folder}: links can be cut only of a cluster that was started "
            "with one"
        )


class NetworkRunsAlready(NetworkError):
    """The cluster's folder has a network, and can have one only."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"a network runs in {folder} already")


class NetworkDied(NetworkError):
    """The process ended, or did not answer. The message says where it may have left a reason."""


class CommandRefused(NetworkError):
    """What was asked of a network makes no sense; nothing has changed."""


class NoSuchParty(CommandRefused):
    """A name that no party of the network has."""
