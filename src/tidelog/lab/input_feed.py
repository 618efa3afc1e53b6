"""Records for an application to work on, sent part by part.

Each partition has a producer of its own, for the reason that `workload.py` gives: a producer that
begins anew may repeat in one partition what it sent to another, and the input would be to blame.
"""

from types import TracebackType
from typing import Final, Self

from tidelog.client.application_producer import Producer

_QUEUED_MAX: Final = 100_000
_DELIVERY_TIMEOUT_MS: Final = 600_000


class InputFeed:
    """Record n goes to partition n modulo their number. The end of the block waits for them all.

    Whoever leaves it early does not: brokers that were killed may never take what is queued.
    """

    def __init__(self, bootstrap: str, topic: str, partition_count: int) -> None:
        self._topic = topic
        self._sent = 0
        self._producers = [
            Producer(
                bootstrap,
                producer_type="async",
                profile="reliable",
                delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
                queue_buffering_max_ms=20,
                queue_buffering_max_messages=_QUEUED_MAX,
                batch_num_messages=1_000,
            )
            for _partition in range(partition_count)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            for producer in self._producers:
                producer.close()

    def send_until(self, count: int) -> None:
        """So many have been sent then, since the beginning."""
        for number in range(self._sent, count):
            partition = number % len(self._producers)
            self._producers[partition].send(self._topic, value_of(number), partition=partition)
        self._sent = max(self._sent, count)


def value_of(number: int) -> bytes:
    """The value of the n-th record of the input."""
    return b"record %d" % number
