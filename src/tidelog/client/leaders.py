"""Who leads a partition, and where brokers are, for readers with connections of their own.

Whoever plans a read knows it and says so (`hints`), so that nobody else need ask, until it is not
true any more. Asking does not create the topic, and imports kio, which takes a moment.
"""

from collections.abc import Callable, Mapping, Sequence

from tidelog.base.ids import TopicPartition
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable


class AskedLeaders:
    """Believes each hint once, and asks from then on: one broker after the other, in turn."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        hints: Mapping[TopicPartition, Address],
        *,
        timeout_s: float,
    ) -> None:
        self._hints = dict(hints)
        # Brokers that were mentioned are more likely to be up than those of an old address list.
        self._known = list(dict.fromkeys([*hints.values(), *bootstrap]))
        self._timeout_s = timeout_s

    def leader_of(self, topic: str, partition: int) -> Address:
        """Raises ClientError."""
        hint = self._hints.pop(TopicPartition(topic, partition), None)
        if hint is not None:
            return hint
        from tidelog.client.direct_metadata import ask_leader  # noqa: PLC0415 - loads kio

        return self._ask(
            lambda known: ask_leader(known, topic, partition, timeout_s=self._timeout_s)
        )

    def address_of(self, broker_id: int) -> Address:
        """Raises ClientError."""
        from tidelog.client.direct_metadata import ask_address  # noqa: PLC0415 - loads kio

        return self._ask(lambda known: ask_address(known, broker_id, timeout_s=self._timeout_s))

    def _ask(self, question: Callable[[Address], Address]) -> Address:
        problem: ClientError = ClusterUnreachable("no broker is known")
        for known in tuple(self._known):
            # A leader that was cut off takes itself for it still: ask somebody else next time.
            self._known.remove(known)
            self._known.append(known)
            try:
                found = question(known)
            except ClientError as error:
                problem = error
            else:
                if found not in self._known:
                    self._known.append(found)
                return found
        raise problem
