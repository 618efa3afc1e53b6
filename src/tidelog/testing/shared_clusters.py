"""Clusters that tests share: one of each shape that is asked for, whole whenever a test begins."""

from tidelog.testing import open_clusters
from tidelog.testing.running import Broker, Cluster
from tidelog.testing.shape import Shape
from tidelog.testing.starting import end, start


class SharedClusters:
    """Started when they are first wanted, ended together."""

    def __init__(self) -> None:
        self._brokers: dict[Shape, Broker] = {}
        self._clusters: dict[Shape, Cluster] = {}
        self._failed: set[Cluster] = set()

    def broker(self, shape: Shape) -> Broker:
        if shape not in self._brokers:
            self._brokers[shape] = start(shape, Broker)
        return self._brokers[shape]

    def cluster(self, shape: Shape) -> Cluster:
        if shape not in self._clusters:
            self._clusters[shape] = start(shape, Cluster)
        return self._clusters[shape]

    def make_whole(self) -> None:
        """Undo what tests did to them."""
        for cluster in self.clusters():
            cluster.make_whole()

    def on_test_failed(self) -> list[Cluster]:
        """Those whose data is to be left, if anybody's is."""
        if open_clusters.keeps_failed():
            self._failed.update(self.clusters())
        return [*self._failed]

    def close(self) -> None:
        for cluster in self.clusters():
            end(cluster, is_failed=False, keeps_data=cluster in self._failed)
        self._brokers.clear()
        self._clusters.clear()

    def clusters(self) -> list[Cluster]:
        """All that run."""
        return [*self._brokers.values(), *self._clusters.values()]
