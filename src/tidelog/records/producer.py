"""What a partition remembers about an idempotent producer.

The same value is decided upon by `core/transactions/producers.py` and kept in `.snapshot` files by
`storage/producer_snapshot.py`, so it lives below both. Named tuples, because one is made for every
idempotent batch.
"""

from typing import NamedTuple

from tidelog.base.ids import Offset, ProducerEpoch, ProducerId

# A producer may have this many batches on the way (`max.in.flight.requests.per.connection`), so a
# retry can be a duplicate of any of them.
REMEMBERED_BATCHES_MAX = 5


class ProducedBatch(NamedTuple):
    """One batch of a producer, as far as a retry of it must be recognised."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class ProducerEntry(NamedTuple):
    """One producer's state in one partition, with its last batches, oldest first."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    last_timestamp_ms: int
    current_txn_first_offset: Offset | None
    batches: tuple[ProducedBatch, ...]
