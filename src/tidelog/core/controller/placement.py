"""Which brokers hold the replicas of new partitions (R11).

Kafka's way. Leaders go round the brokers one by one, starting anywhere. The other replicas of a
partition follow at a shift from its leader, and the shift grows each time the leaders have been
round once, so that the partitions of a broker that dies do not all fall to the same neighbour.

    brokers 0..4, 3 replicas, start 0, shift 0
    partition   0      1      2      3      4      5      6
    replicas    0 1 2  1 2 3  2 3 4  3 4 0  4 0 1  0 2 3  1 3 4

With racks, brokers are lined up rack by turn, and a replica goes to a rack that has none of the
partition yet as long as there is one.

Rules:

    P1  A broker holds at most one replica of a partition.
    P2  Over as many partitions as there are brokers, every broker leads the same number.
    P3  With at least as many racks as replicas, no two replicas share a rack.

Where to start is an argument: nothing here draws lots.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import count, zip_longest

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.core.controller.image import BrokerImage

Replicas = tuple[BrokerId, ...]


def place(
    brokers: Mapping[BrokerId, BrokerImage],
    *,
    partition_count: int,
    replication_factor: int,
    first_partition: int,
    start_index: int,
    shift: int,
) -> tuple[Replicas, ...]:
    """Replicas for partitions `first_partition` and on, the preferred leader first."""
    require_enough(brokers, replication_factor)
    racks = _racks(brokers)
    line = _line_up(racks)
    return tuple(
        _replicas(
            line,
            racks,
            replication_factor=replication_factor,
            leader_index=(partition + start_index) % len(line),
            shift=shift + _rounds(partition, len(line), first_partition),
        )
        for partition in range(first_partition, first_partition + partition_count)
    )


def require_enough(brokers: Mapping[BrokerId, BrokerImage], replication_factor: int) -> None:
    if replication_factor > len(brokers):
        raise RequestRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is more than the {len(brokers)} "
            "live broker(s)",
        )


def start_after(brokers: Mapping[BrokerId, BrokerImage], first_leader: BrokerId) -> int:
    """The `start_index` with which a topic whose partition 0 prefers `first_leader` goes on.

    If that broker is away, the one with the next larger id stands in for it, as in Kafka.
    """
    line = _line_up(_racks(brokers))
    stands_in = min((each for each in line if each >= first_leader), default=None)
    return 0 if stands_in is None else line.index(stands_in)


def require_valid(
    replicas: Sequence[BrokerId],
    brokers: Mapping[BrokerId, BrokerImage],
    staying: Set[BrokerId],
    *,
    replication_factor: int | None,
) -> None:
    """Refuse an assignment by hand that names nobody, a stranger, somebody twice or too many.

    It may name brokers that are about to stop, but not only those: nobody could begin to lead.
    """
    if not replicas:
        raise _bad_assignment("an assignment names no replica")
    for broker_id in replicas:
        if broker_id not in brokers:
            raise _bad_assignment(f"an assignment names broker {broker_id}, which is not alive")
    if len(set(replicas)) < len(replicas):
        raise _bad_assignment(f"an assignment names a broker twice: {list(replicas)}")
    if staying.isdisjoint(replicas):
        raise _bad_assignment(f"all brokers of an assignment are about to stop: {list(replicas)}")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad_assignment(
            f"an assignment names {len(replicas)} replica(s) where other partitions of the topic "
            f"have {replication_factor}"
        )


def _bad_assignment(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _racks(brokers: Mapping[BrokerId, BrokerImage]) -> dict[BrokerId, str]:
    """The rack of every broker; the same for all unless every one of them says where it is."""
    if any(broker.rack is None for broker in brokers.values()):
        return dict.fromkeys(sorted(brokers), "")
    return {broker_id: brokers[broker_id].rack or "" for broker_id in sorted(brokers)}


def _line_up(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """One broker of each rack by turn, so that neighbours in the line are in different racks."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker_id, rack in racks.items():
        by_rack.setdefault(rack, []).append(broker_id)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker_id for turn in turns for broker_id in turn if broker_id is not None]


def _rounds(partition: int, broker_count: int, first_partition: int) -> int:
    """How often the leaders have been round since the first of the new partitions."""
    start = max(first_partition, 1)  # Partition 0 begins the first round, it does not end one.
    if partition < start:
        return 0
    return partition // broker_count - (start - 1) // broker_count


def _replicas(
    line: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    *,
    replication_factor: int,
    leader_index: int,
    shift: int,
) -> Replicas:
    rack_count = len(set(racks.values()))
    chosen = [line[leader_index]]
    racks_used = {racks[chosen[0]]}
    for step in count():
        if len(chosen) == replication_factor:
            return tuple(chosen)
        others = len(line) - 1
        # A shift by whole turns of the racks keeps the rack of each step what it was.
        distance = 1 + (shift * rack_count + step) % others
        candidate = line[(leader_index + distance) % len(line)]
        if candidate in chosen:  # P1
            continue
        if racks[candidate] in racks_used and len(racks_used) < rack_count:  # P3
            continue
        chosen.append(candidate)
        racks_used.add(racks[candidate])
    raise AssertionError("there are fewer brokers than replicas")
