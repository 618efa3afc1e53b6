"""How a batch is judged before it is appended: by who sent it."""

from typing import NamedTuple

from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.core.transactions.verification import Guard
from tidelog.records.control import TransactionEnd


class FromClient(NamedTuple):
    """A producer's batch: validated, and looked for among those that were sent before."""

    guard: Guard | None
    """What a batch of a transaction brings along whose coordinator has vouched for it."""


class FromCoordinator(NamedTuple):
    """What a coordinator on this broker writes in an internal topic: believed.

    In a client's transaction, that has to be going on.
    """

    guard: Guard | None


class Marker(NamedTuple):
    """The end of a transaction, as its coordinator sends it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    end: TransactionEnd
    transaction_version: int


Terms = FromClient | FromCoordinator | Marker

NO_GUARD = FromClient(None)
