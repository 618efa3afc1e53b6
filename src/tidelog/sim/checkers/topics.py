"""P12: what an administrator was told about topics is so, and nothing is left half done (C4).

A topic whose creation was acknowledged is there, with all of its partitions; one whose deletion was
acknowledged is not. Of what was not answered nobody knows, but it is there whole or not at all:
whoever becomes controller finishes what another one began.
"""

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.controller import nodes
from tidelog.sim.observation import Cluster, Sight
from tidelog.sim.operations import Operations


class TopicsChecker:
    """Looks once, when everything has come to rest."""

    def __init__(self, cluster: Cluster, operations: Operations) -> None:
        self._cluster = cluster
        self._operations = operations

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Only what is there in the end counts."""

    def at_end(self) -> None:
        tree = self._cluster.tree
        present = set(tree.children(nodes.TOPICS))
        lost = self._operations.created.keys() - present
        if lost:
            raise self._cluster.fail("a topic that was created is there", f"not {sorted(lost)}")
        for name, partition_count in self._operations.created.items():
            found = len(tree.children(nodes.partitions_path(name)))
            if found < partition_count:
                raise self._cluster.fail(
                    "a topic has the partitions it was given",
                    f"{name} has {found} instead of {partition_count}",
                )
        undead = self._operations.deleted & present
        if undead:
            raise self._cluster.fail("a topic that was deleted is gone", f"not {sorted(undead)}")
