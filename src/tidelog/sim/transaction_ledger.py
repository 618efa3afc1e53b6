"""What transactional producers did and were told: for the checker (`checkers/transactions.py`)."""

from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """What is known of a transaction to whoever began it."""

    OPEN = "nobody has asked to commit it"
    ASKED = "somebody has asked to commit it, and was not answered"
    COMMITTED = "it was said to be committed"
    ABORTED = "it was said to be aborted"


@dataclass(slots=True)
class Transaction:
    """One transaction, numbered by its producer."""

    transactional_id: str
    number: int
    outcome: Outcome = Outcome.OPEN
    written: list[tuple[int, bytes]] = field(default_factory=list)
    """Partition and value of each record that was acknowledged."""

    has_offset: bool = False
    """Whether its number was acknowledged as an offset of the producer's group."""


@dataclass(slots=True)
class TransactionLedger:
    transactions: list[Transaction] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)
    """How often each error code was answered."""
    _by_name: dict[tuple[str, int], Transaction] = field(default_factory=dict, repr=False)

    def begin(self, transactional_id: str, number: int) -> Transaction:
        transaction = Transaction(transactional_id, number)
        self.transactions.append(transaction)
        self._by_name[transactional_id, number] = transaction
        return transaction

    def find(self, transactional_id: str, number: int) -> Transaction:
        """One that was begun."""
        return self._by_name[transactional_id, number]

    def note_refusal(self, code: int) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1
