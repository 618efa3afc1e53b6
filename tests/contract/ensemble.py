"""The ZooKeeper ensemble that all tests of a run share, each in a folder of its own.

It does not stay whole: `kill_leader` leaves the server dead that led, and the tests that follow
make do with the other two until the next one kills a leader.
"""

from itertools import count

from tests.support.zookeeper import ServersForTests


class SharedEnsemble:
    """Three servers, of which one may be dead."""

    def __init__(self, ensemble: ServersForTests) -> None:
        self._ensemble = ensemble
        self._folders = count()
        self._dead: int | None = None

    @property
    def hosts(self) -> str:
        return self._ensemble.hosts

    def new_hosts(self) -> str:
        """The servers and a chroot that nobody has used."""
        return f"{self.hosts}/test-{next(self._folders)}"

    def living_address(self) -> str:
        """Of a server that serves, and not as the leader."""
        for server_id in self._ensemble.server_ids:
            if server_id != self._dead and self._ensemble.mode(server_id) == "follower":
                return self._ensemble.address(server_id)
        raise AssertionError("no server follows")

    def make_whole(self) -> None:
        if self._dead is not None:
            self._ensemble.restart(self._dead)
            self._dead = None
        self._ensemble.wait()

    def kill_leader(self) -> None:
        """Kill whoever leads three servers that are alive."""
        assert self._dead is None
        self._dead = self._ensemble.leader()
        assert self._dead is not None
        self._ensemble.kill(self._dead)
