"""Transactions on the partitions of a `World`, as their producers and coordinators would do it."""

from tests.support.batches import transactional_batch
from tests.unit.broker.world import OTHER, Produced, World
from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.broker.append_terms import FromClient, Marker
from tidelog.core.transactions.verification import Guard
from tidelog.records.control import ControlType, TransactionEnd

PRODUCER = 7


def vouch(
    world: World,
    name: str = "t",
    *,
    partition: int = 0,
    producer: int = PRODUCER,
    epoch: int = 0,
    sequence: int = 0,
    bumps_epoch: bool = False,
) -> Guard | None:
    """What a batch brings along whose coordinator was asked."""
    return world.runner(name, partition).producers.begin_verification(
        producer, epoch, sequence=sequence, bumps_epoch=bumps_epoch, now_ms=0
    )


def write(
    world: World,
    name: str = "t",
    *,
    partition: int = 0,
    producer: int = PRODUCER,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    acks: int = 1,
    guard: Guard | None = None,
) -> Produced:
    """Append a batch of a transaction, with a guard if it needs one."""
    if guard is None:
        guard = vouch(
            world, name, partition=partition, producer=producer, epoch=epoch, sequence=sequence
        )
    produced = Produced()
    result = world.runner(name, partition).append(
        memoryview(transactional_batch(sequence, count=count, producer=producer, epoch=epoch)),
        acks=acks,
        now_ms=world.clock.now_ms(),
        settle=produced.results.append,
        terms=FromClient(guard),
    )
    if result is not None:
        produced.results.append(result)
    return produced


def end(
    world: World,
    name: str = "t",
    *,
    partition: int = 0,
    producer: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    commit: bool = False,
) -> Produced:
    """Append a marker."""
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    marker = Marker(
        ProducerId(producer),
        ProducerEpoch(epoch),
        TransactionEnd(control_type, coordinator_epoch),
        version,
    )
    ended = Produced()
    result = world.runner(name, partition).append_marker(
        marker, now_ms=world.clock.now_ms(), settle=ended.results.append
    )
    if result is not None:
        ended.results.append(result)
    return ended


def follower_has(world: World, offset: int, name: str = "t") -> None:
    """The other replica holds everything below `offset`."""
    world.runner(name).on_follower_fetch(
        OTHER, broker_epoch=20, fetch_offset=Offset(offset), log_start_offset=Offset(0)
    )


def aborted(world: World, name: str = "t") -> list[tuple[int, int, int, int]]:
    """All that the transaction index says."""
    log = world.runner(name).log
    found = log.aborted_transactions(log.log_start_offset, end_offset=log.log_end_offset)
    return [tuple(one) for one in found]  # type: ignore[misc]
