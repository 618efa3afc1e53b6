"""The clusters that this process has open, for whoever reports on a test that failed.

A cluster that a test opened and closed itself is gone when the test is reported; what its brokers
said is kept until the next test begins, if the test left it with an exception.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.testing.running import Cluster

_open: Final[list["Cluster"]] = []
_last_words: Final[list[str]] = []
_wishes: Final = {"keeps_failed": False}


def add(cluster: "Cluster") -> None:
    _open.append(cluster)


def remove(cluster: "Cluster", *, is_failed: bool) -> None:
    _open.remove(cluster)
    if is_failed:
        _last_words.append(cluster.story())


def begin_test() -> None:
    """Forget what was said before."""
    _last_words.clear()
    for cluster in _open:
        cluster.logs.mark()


def stories(unused: Collection["Cluster"]) -> list[str]:
    """How the brokers of each cluster are, and what they have said since the test began.

    Nothing of those that the test has no part in.
    """
    return [*_last_words, *(each.story() for each in _open if each not in unused)]


def keep_failed() -> None:
    """From now on, leave the data of clusters that were in use when a test failed."""
    _wishes["keeps_failed"] = True


def keeps_failed() -> bool:
    return _wishes["keeps_failed"]
