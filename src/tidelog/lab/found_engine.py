"""The engine of a cluster that somebody else has started: `tidelog up`, or a lab that runs.

What there is beside its brokers is found in the folder; who started it is who stops it.
"""

from collections.abc import Mapping

from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.errors import NoNetwork
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.proxied import proxy_ports
from tidelog.lab.starting import Patience


class FoundEngine:
    """An engine (`engines.py`) of brokers that are there already."""

    ensemble = None
    why_fixed = "who started the cluster says how many brokers it has"

    def __init__(self, folder: ClusterFolder) -> None:
        is_foreign = any(folder.command_file(each).exists() for each in folder.broker_ids())
        self.name = "kafka" if is_foreign else "tidelog"
        self.tells_controller = not is_foreign
        self.network = _network_in(folder)
        self.bootstrap = ",".join(f"127.0.0.1:{each}" for each in proxy_ports(folder).values())

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        raise LabError("the cluster was found, and is not to be started")

    def add(self, broker_id: int, *, patience: Patience) -> None:
        raise LabError(f"broker {broker_id} was not added: {self.why_fixed}")

    def remove(self, broker_id: int) -> None:
        raise LabError(f"broker {broker_id} was not removed: {self.why_fixed}")

    def stop(self) -> None:
        """Whoever stops the last broker has stopped what was beside them."""


def _network_in(folder: ClusterFolder) -> LabNetwork | None:
    try:
        return LabNetwork.find(folder)
    except NoNetwork:
        return None
