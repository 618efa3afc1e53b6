"""P27, P28: what a move does to a replica, and what it leaves.

P27  a replica lies in one log dir of its broker, the one that was asked for last, and nothing is
     left of a move: no copy (`-future`), and no log that says that another has taken its place
P28  a replica has what it had, wherever it is moved to, when its broker was killed and is back

P27 is looked at on the disks themselves, when nothing moves any more. P28 says of each replica what
other promises say of all together: those hold as long as others have what one has lost, and who was
killed is believed to have lost nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.base.ids import TopicPartition
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.log_dir_ledger import RECOVERY_MAX_S, LogDirLedger, ReplicaKey
from tidelog.sim.observation import Cluster, Sight
from tidelog.sim.process import Process
from tidelog.storage import layout


class _Held(NamedTuple):
    """What a replica had when it was last seen."""

    life: int
    boot_count: int
    folder: Path
    end_offset: int
    is_being_cut: bool
    seen_s: float


class LogDirsChecker:
    """Looks at every replica after each turn of its broker, and at the disks in the end."""

    def __init__(self, cluster: Cluster, ledger: LogDirLedger) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._last: dict[ReplicaKey, _Held] = {}
        self.moved_count = 0
        cluster.world.observe(self._on_turn)

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """It has changed; but what it had before is looked at as well."""

    def _on_turn(self, process: Process) -> None:
        for key in self._ledger.keys:
            broker = self._cluster.brokers[key.broker_id]
            state = self._cluster.state(key.partition)
            if state is None or key.broker_id not in state.replicas:
                self._last.pop(key, None)
            elif broker.process is process:
                self._look(key, broker)

    def _look(self, key: ReplicaKey, broker: SimulatedBroker) -> None:
        runner = broker.runner(self._cluster.topic, key.partition)
        if runner is None or runner.is_offline:
            return
        held = _Held(
            broker.life,
            broker.boot_count,
            runner.log.folder,
            runner.log.log_end_offset,
            runner.is_being_cut,
            self._cluster.world.now_s,
        )
        before = self._last.get(key, held)
        self._last[key] = held
        self.moved_count += before.life == held.life and before.folder != held.folder
        certain_s = broker.disk.last_failed_s + RECOVERY_MAX_S
        if before.is_being_cut or before.seen_s < certain_s or before.boot_count != held.boot_count:
            return
        if before.life != held.life and held.end_offset < before.end_offset:
            raise self._cluster.fail(
                "a replica has what it had when its broker was killed",
                f"partition {key.partition} of broker {key.broker_id} ended at {before.end_offset} "
                f"in {before.folder} at {before.seen_s:.3f} s, and at {held.end_offset} in "
                f"{held.folder} when it was back",
            )

    def at_end(self) -> None:
        leftover = self.leftover()
        if leftover is not None:
            raise self._cluster.fail("nothing is left of a move", leftover)
        self.require_places()

    def require_places(self) -> None:
        """Nothing moves: everybody is where it was asked to be."""
        for key in self._ledger.keys:
            broker = self._cluster.brokers[key.broker_id]
            runner = broker.runner(self._cluster.topic, key.partition)
            if runner is None:
                continue
            found, allowed = runner.log.folder.parent, self._ledger.places(key)
            if found not in allowed:
                raise self._cluster.fail(
                    "a replica lies where it was last asked to be",
                    f"partition {key.partition} of broker {key.broker_id} is in {found}, not in "
                    f"{sorted(map(str, allowed))}",
                )

    def leftover(self) -> str | None:
        """What a move has left, or has not done yet; None if there is nothing."""
        for broker in self._cluster.brokers.values():
            found: dict[TopicPartition, Path] = {}
            for log_dir, name in _names(broker):
                if layout.parse_future_folder(name) is not None:
                    return f"a copy: {broker.host} {log_dir / name}"
                one = layout.parse_partition_folder(name)
                if one is None:
                    continue
                if broker.disk.memory.exists(log_dir / name / layout.MOVED):
                    return f"a mark: {broker.host} {log_dir / name}"
                if one in found:
                    return f"{broker.host} has {one} in {found[one]} and in {log_dir}"
                found[one] = log_dir
                runner = broker.runner(*one)
                if runner is not None and runner.log.folder.parent != log_dir:
                    return f"{broker.host} serves {one} from {runner.log.folder}, not {log_dir}"
        return None


def _names(broker: SimulatedBroker) -> Iterator[tuple[Path, str]]:
    for log_dir in broker.log_dirs:
        if broker.disk.memory.exists(log_dir):
            for name in broker.disk.memory.list_folder(log_dir):
                yield log_dir, name
