"""Where the replicas of a run may lie: what was asked for, and what came of it.

Each replica has *claims*, in the order in which they were made: directories that it may be found in
when nothing moves any more. A request that was answered with success outdoes every claim that was
settled before it was sent; one of which nobody has heard stays, as long as the process lives that
it was sent to.

    asked, and answered             its directory, and nothing else that was asked for before
    asked, and not answered         its directory, or what it was before; perhaps later
    asked, and refused              what it was before, or where it is: a move may have been ended
    the replica is made anew        anywhere
    a disk has failed               anywhere: a move to a full disk is given up, and what is not
                                    wanted any more may be on a disk that nobody can read
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.observation import Cluster
from tidelog.sim.process import Process

RECOVERY_MAX_S = 5.0
"""So long after it was mended a disk may still be offline."""


class ReplicaKey(NamedTuple):
    broker_id: int
    partition: int


@dataclass(slots=True)
class Claim:
    """`log_dir` None: anywhere."""

    log_dir: Path | None
    sent_s: float
    first_life: int
    settled_s: float = inf
    last_life: int | None = None
    """Of the broker, when whoever had asked gave up; None if it was answered, or may be yet."""

    def may_follow(self, other: "Claim") -> bool:
        """Whether it may be done, or have been done, after `other`, which was granted."""
        if self.last_life is not None:
            return self.last_life >= other.first_life
        return self.settled_s >= other.sent_s


class LogDirLedger:
    """See the module docstring."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._claims: dict[ReplicaKey, list[Claim]] = {
            key: [self._anywhere(key)] for key in self.keys
        }
        self._runners: dict[ReplicaKey, tuple[int, PartitionRunner | None]] = {}
        cluster.world.observe(self._on_turn)

    @property
    def keys(self) -> Sequence[ReplicaKey]:
        """Every replica that there may be."""
        return [
            ReplicaKey(broker_id, partition)
            for broker_id in self._cluster.brokers
            for partition in range(self._cluster.partition_count)
        ]

    def places(self, key: ReplicaKey) -> set[Path]:
        """The directories in which it may lie."""
        broker = self._cluster.brokers[key.broker_id]
        certain_s = broker.disk.last_failed_s + RECOVERY_MAX_S
        claims = self._claims[key]
        if any(claim.log_dir is None or claim.sent_s < certain_s for claim in claims):
            return set(broker.log_dirs)
        return {claim.log_dir for claim in claims if claim.log_dir is not None}

    # -- what is asked ---------------------------------------------------------------------------

    def asked(self, key: ReplicaKey, log_dir: Path) -> Claim:
        broker = self._cluster.brokers[key.broker_id]
        claim = Claim(log_dir, self._cluster.world.now_s, broker.life)
        self._claims[key].append(claim)
        return claim

    def granted(self, key: ReplicaKey, claim: Claim) -> None:
        claim.settled_s = self._cluster.world.now_s
        others = [one for one in self._claims[key] if one is not claim]
        self._claims[key] = [*(one for one in others if one.may_follow(claim)), claim]

    def refused(self, key: ReplicaKey, claim: Claim) -> None:
        claim.settled_s = self._cluster.world.now_s
        broker = self._cluster.brokers[key.broker_id]
        runner = broker.runner(self._cluster.topic, key.partition)
        claim.log_dir = None if runner is None else _log_dir_of(broker, runner)

    def unanswered(self, key: ReplicaKey, claim: Claim) -> None:
        claim.settled_s = self._cluster.world.now_s
        claim.last_life = self._cluster.brokers[key.broker_id].life

    # -- what becomes of replicas ----------------------------------------------------------------

    def _on_turn(self, process: Process) -> None:
        for partition in range(self._cluster.partition_count):
            state = self._cluster.state(partition)
            for broker in self._cluster.brokers.values():
                key = ReplicaKey(broker.broker_id, partition)
                if state is not None and broker.broker_id not in state.replicas:
                    self._made_anew(key)
                if broker.process is process:
                    self._look(key, broker)

    def _look(self, key: ReplicaKey, broker: SimulatedBroker) -> None:
        runner = broker.runner(self._cluster.topic, key.partition)
        life, before = self._runners.get(key, (0, None))
        if life != broker.life:
            before = None
        if before is not None and runner is not before:
            self._made_anew(key)
        self._runners[key] = (broker.life, runner or before)

    def _made_anew(self, key: ReplicaKey) -> None:
        under_way = [
            one for one in self._claims[key] if one.settled_s == inf or one.last_life is not None
        ]
        self._claims[key] = [*under_way, self._anywhere(key)]

    def _anywhere(self, key: ReplicaKey) -> Claim:
        now_s = self._cluster.world.now_s
        life = self._cluster.brokers[key.broker_id].life
        return Claim(None, now_s, life, settled_s=now_s)


def _log_dir_of(broker: SimulatedBroker, runner: PartitionRunner) -> Path:
    folder = runner.log.folder.parent
    assert folder in broker.log_dirs
    return folder
