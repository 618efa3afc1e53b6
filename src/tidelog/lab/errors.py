"""Why a local cluster could not be started, stopped or found."""

from pathlib import Path
from signal import Signals

from tidelog.base.errors import TidelogError

_COMPLAINT = "tidelog broker: "


class LabError(TidelogError):
    """A local cluster is not as it should be. The message says where to look."""


class FolderUnusable(LabError):
    """Files cannot be made where the cluster's data should go."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"the data folder {folder} cannot be used: {reason}")


class AlreadyRunning(LabError):
    """The data folder belongs to a cluster that runs."""

    def __init__(self, folder: Path, address: str, pid: int) -> None:
        super().__init__(f"a cluster runs in {folder} already, at {address} (pid {pid})")
        self.folder = folder


class PortInUse(LabError):
    """Somebody else listens where a broker should."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"port {port} of {host} is in use")
        self.port = port


class BrokerDied(LabError):
    """A broker ended without being told to. `last_lines` are the end of what it printed.

    `sentence` is what it gave as the reason: a broker that cannot start says why and ends.
    """

    def __init__(self, broker_id: int, exit_code: int, last_lines: tuple[str, ...]) -> None:
        super().__init__(f"broker {broker_id} {exit_text(exit_code)}")
        self.broker_id = broker_id
        self.exit_code = exit_code
        self.last_lines = last_lines
        complaints = [line for line in last_lines if line.startswith(_COMPLAINT)]
        self.sentence = complaints[-1].removeprefix(_COMPLAINT) if complaints else None


class NotReady(LabError):
    """A broker runs but did not start to listen in time."""

    def __init__(self, broker_id: int, timeout_s: float, last_lines: tuple[str, ...]) -> None:
        super().__init__(f"broker {broker_id} was not ready after {timeout_s:.0f} s")
        self.broker_id = broker_id
        self.last_lines = last_lines


class StartCancelled(LabError):
    """Whoever wanted a cluster did not want to wait for it."""


def exit_text(exit_code: int) -> str:
    """How a process ended, in words; negative codes are signals, as in `subprocess`."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
