"""What a cluster of `tidelog up` has around its brokers: a network that can be cut, small disks.

Both live for as long as the cluster: whoever stops its last broker ends them, and whoever starts
the next cluster in the folder ends what one that died has left. Who calls anything here holds the
folder's lock, and no broker runs.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelog.lab import small_disks
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.errors import NoNetwork
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.routes import Route


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What there should be. No routes: no network. None: logs lie where the folder does."""

    routes: Sequence[Route]
    disk_mib: int | None


def surround(folder: ClusterFolder, broker_ids: Sequence[int], wanted: Surroundings) -> None:
    """Have it there before the brokers are; after a failure `end_surroundings` is to be called."""
    end_surroundings(folder)
    if wanted.disk_mib is not None:
        for broker_id in broker_ids:
            small_disks.mount(folder.log_dir(broker_id), size_mib=wanted.disk_mib)
    if wanted.routes:
        # Brokers outlive an `up` in the foreground that is killed, and so has their network to.
        LabNetwork.start(folder, wanted.routes, is_tied=False)


def end_surroundings(folder: ClusterFolder) -> None:
    """Stop the network and leave plain files; nothing where there is neither."""
    with suppress(NoNetwork):
        LabNetwork.find(folder).stop()
    for broker_id in folder.broker_ids():
        small_disks.release(folder.log_dir(broker_id))
