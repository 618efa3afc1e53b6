"""The in-sync replicas of a topic over time, asked of one broker ten times a second."""

import threading
import time
from typing import Final, Self

from tidelog.bench.measured import IsrSample
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_topic

_INTERVAL_S: Final = 0.1
_ANSWER_WITHIN_S: Final = 1.0


class IsrWatch:
    """Takes samples between enter and exit, on a thread of its own. A busy broker has gaps."""

    def __init__(self, address: Address, topic: str) -> None:
        self._samples: list[tuple[int, tuple[int, ...]]] = []
        self._address = address
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def since(self, began_ns: int) -> tuple[IsrSample, ...]:
        """What was seen from then on; times are those of `time.monotonic_ns`."""
        return tuple(
            IsrSample((at_ns - began_ns) / 1e9, sizes)
            for at_ns, sizes in self._samples
            if at_ns >= began_ns
        )

    def _watch(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            try:
                view = ask_topic(self._address, self._topic, timeout_s=_ANSWER_WITHIN_S)
            except ClientError:
                continue
            if view.partitions:
                sizes = tuple(_in_sync(each.leader, each.isr) for each in view.partitions)
                self._samples.append((time.monotonic_ns(), sizes))


def _in_sync(leader: int | None, isr: tuple[int, ...]) -> int:
    """A partition that nobody leads has no replica that counts, whoever was in sync last."""
    return 0 if leader is None else len(isr)
