"""A partition's replicas, its controller and an acks=all producer, as far as a transcript needs.

The leader is the real machine and so are the epoch histories. A follower is a plain list, the epoch
in which each record was written, that does what R3 and R7 say; the controller answers at once.

    cluster brokers=1,2 [isr=1] [min.insync.replicas=1] [replica.lag.time.max.ms=30000]
    append leader=1 records=4 [acks=all]
    fetch replica=2 offset=4       the bare event: this replica holds everything below 4
    pull replica=2                 a whole round: fetch, truncate, append, learn the high watermark
    advance ms=100                 time passes; parked fetches and lagging followers run out of it
    crash broker=1 [lost=1]        and its last records with it, if they were not flushed
    stop broker=1    restart broker=1    elect broker=2    set min.insync.replicas=1
    show                           every replica at the end of this block
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.scenarios.transcript import Command
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.core.partition.effects import Effects, ProposeIsr
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.leader import ACKS_ALL, PartitionLeader, elected

ACKS = {"all": ACKS_ALL, "1": 1, "0": 0}
REPLICA_FETCH_WAIT_MAX_MS = 500


@dataclass(slots=True)
class Replica:
    """One broker's copy of the partition."""

    broker: BrokerId
    records: list[LeaderEpoch] = field(default_factory=list)
    epochs: EpochHistory = field(default_factory=lambda: EpochHistory(()))
    high_watermark: Offset = field(default=Offset(0))
    is_up: bool = True
    broker_epoch: int = 0

    @property
    def end(self) -> Offset:
        return Offset(len(self.records))

    def append(self, records: list[LeaderEpoch]) -> None:
        for epoch in records:
            self.epochs.assign(epoch, start_offset=self.end)
            self.records.append(epoch)

    def truncate(self, end: Offset) -> None:
        del self.records[end:]
        self.epochs.truncate_from_end(end)
        self.high_watermark = min(self.high_watermark, end)

    def learn(self, high_watermark: Offset) -> None:
        self.high_watermark = min(self.end, high_watermark)

    def __str__(self) -> str:
        epochs = ",".join(f"{e.leader_epoch}@{e.start_offset}" for e in self.epochs.entries)
        if not self.is_up:
            return f"broker {self.broker}: down"
        return f"broker {self.broker}: end={self.end} high_watermark={self.high_watermark} " + (
            f"epochs={epochs}" if epochs else "epochs=none"
        )


class Replicas:
    """Performs commands and tells what happened, in the order it happened."""

    def __init__(self, command: Command) -> None:
        brokers = _ids(command.values["brokers"])
        self.replicas = {broker: Replica(broker) for broker in brokers}
        self.isr = frozenset(_ids(command.values.get("isr", command.values["brokers"])))
        self.isr_version = 0
        self.epoch = 0
        self.min_insync_replicas = command.number_or("min.insync.replicas", 1)
        self.lag_max_ms = command.number_or("replica.lag.time.max.ms", 30_000)
        self.now_ms = 0
        self.leader: PartitionLeader | None = None
        self.parked: dict[BrokerId, int] = {}
        self.waiting: list[Offset] = []
        self.shows_everybody = False
        self._commands: Mapping[str, Callable[[Command], list[str]]] = {
            "append": self._append,
            "fetch": self._fetch,
            "pull": lambda command: self._pull(_id(command, "replica")),
            "advance": self._advance,
            "crash": self._crash,
            "stop": self._crash,
            "restart": self._restart,
            "elect": self._elect,
            "set": self._set,
            "show": self._show,
        }
        self._lead(brokers[0])

    def perform(self, command: Command) -> list[str]:
        return self._commands[command.name](command)

    def state(self) -> list[str]:
        if self.shows_everybody:
            self.shows_everybody = False
            return [self._described(replica) for replica in self.replicas.values()]
        if self.leader is None:
            return ["partition: no leader"]
        return [
            f"broker {self.leader.broker}: end={self.leader.log_end_offset} "
            f"high_watermark={self.leader.high_watermark} isr={_joined(self.leader.isr)}"
        ]

    def _described(self, replica: Replica) -> str:
        if self.leader is None or replica.broker != self.leader.broker:
            return str(replica)
        remote = ",".join(
            f"{broker}:{max(progress.log_end_offset, 0)}"
            for broker, progress in self.leader.followers.items()
        )
        return f"{replica} remote={remote}"

    def _append(self, command: Command) -> list[str]:
        leader = self._required_leader()
        acks = ACKS[command.values.get("acks", "1")]
        try:
            leader.refuse_before_append(acks)
        except RequestRefused as refused:
            return [f"producer: {refused.code.name}"]
        log = self.replicas[leader.broker]
        log.append([leader.leader_epoch] * command.number("records"))
        if acks == ACKS_ALL:
            self.waiting.append(log.end)
        seen = self._effects(leader.on_append(log.end, now_ms=self.now_ms))
        for broker in list(self.parked):
            seen += [f"broker {leader.broker}: wakes fetch of {broker}", *self._answer(broker)]
        return seen

    def _fetch(self, command: Command) -> list[str]:
        leader = self._required_leader()
        broker = _id(command, "replica")
        offset = Offset(command.number("offset"))
        follower = self.replicas[broker]
        follower.truncate(offset)
        follower.append(self.replicas[leader.broker].records[follower.end : offset])
        return self._report(broker)

    def _report(self, broker: BrokerId) -> list[str]:
        return self._effects(
            self._required_leader().on_follower_fetch(
                broker,
                broker_epoch=self.replicas[broker].broker_epoch,
                fetch_offset=self.replicas[broker].end,
                log_start_offset=Offset(0),
                now_ms=self.now_ms,
            )
        )

    def _pull(self, broker: BrokerId) -> list[str]:
        leader = self._required_leader()
        follower = self.replicas[broker]
        seen = [f"broker {broker}: fetch offset={follower.end}"]
        if follower.end > 0:
            diverging = self.replicas[leader.broker].epochs.diverging_end(
                follower.epochs.latest_epoch,
                fetch_offset=follower.end,
                log_end_offset=leader.log_end_offset,
            )
            if diverging is not None:
                return [*seen, *self._truncate(follower, *diverging), *self._pull(broker)]
        seen += self._report(broker)
        if leader.log_end_offset == follower.end and leader.high_watermark == (
            follower.high_watermark
        ):
            self.parked[broker] = self.now_ms + REPLICA_FETCH_WAIT_MAX_MS
            return [*seen, f"broker {leader.broker}: parks fetch of {broker}"]
        return [*seen, *self._answer(broker)]

    def _truncate(self, follower: Replica, epoch: LeaderEpoch, end: Offset) -> list[str]:
        own_end = follower.epochs.end_offset_for(epoch, log_end_offset=follower.end).end_offset
        follower.truncate(min(end, own_end))
        return [
            f"broker {self._required_leader().broker}: diverging epoch={epoch} end={end}",
            f"broker {follower.broker}: truncates to {follower.end}",
        ]

    def _answer(self, broker: BrokerId) -> list[str]:
        leader = self._required_leader()
        self.parked.pop(broker, None)
        follower = self.replicas[broker]
        records = self.replicas[leader.broker].records[follower.end :]
        follower.append(records)
        follower.learn(leader.high_watermark)
        return [
            f"broker {leader.broker}: sends {broker} records={len(records)} "
            f"high_watermark={leader.high_watermark}",
            f"broker {broker}: end={follower.end} high_watermark={follower.high_watermark}",
        ]

    def _advance(self, command: Command) -> list[str]:
        self.now_ms += command.number("ms")
        expired = [broker for broker, at_ms in self.parked.items() if at_ms <= self.now_ms]
        seen = [line for broker in expired for line in self._answer(broker)]
        return seen + self._effects(self._required_leader().on_tick(now_ms=self.now_ms))

    def _crash(self, command: Command) -> list[str]:
        broker = _id(command, "broker")
        replica = self.replicas[broker]
        replica.is_up = False
        replica.truncate(Offset(replica.end - command.number_or("lost", 0)))
        self.parked.pop(broker, None)
        if self.leader is None or broker != self.leader.broker:
            return self._sessions_changed()
        self.leader = None
        self.parked = {}
        unanswered = [f"producer: no answer for end={end}" for end in self.waiting]
        self.waiting = []
        return unanswered

    def _restart(self, command: Command) -> list[str]:
        replica = self.replicas[_id(command, "broker")]
        replica.is_up = True
        replica.broker_epoch += 1
        return self._sessions_changed()

    def _sessions_changed(self) -> list[str]:
        if self.leader is None:
            return []
        return self._effects(self.leader.on_live_brokers_changed(self._live(), now_ms=self.now_ms))

    def _elect(self, command: Command) -> list[str]:
        broker = _id(command, "broker")
        assert broker in self.isr
        self.isr = frozenset(member for member in self.isr if self.replicas[member].is_up)
        self.isr_version += 1
        self._lead(broker)
        return [f"controller: leader={broker} isr={_joined(self.isr)} epoch={self.epoch}"]

    def _lead(self, broker: BrokerId) -> None:
        self.epoch += 1
        log = self.replicas[broker]
        self.leader = elected(
            broker=broker,
            replicas=tuple(self.replicas),
            leader_epoch=LeaderEpoch(self.epoch),
            isr=self.isr,
            isr_version=self.isr_version,
            live_brokers=self._live(),
            log_start_offset=Offset(0),
            log_end_offset=log.end,
            high_watermark=log.high_watermark,
            min_insync_replicas=self.min_insync_replicas,
            replica_lag_time_max_ms=self.lag_max_ms,
            now_ms=self.now_ms,
        )
        log.epochs.assign(LeaderEpoch(self.epoch), start_offset=log.end)
        log.high_watermark = self.leader.high_watermark

    def _set(self, command: Command) -> list[str]:
        self.min_insync_replicas = command.number("min.insync.replicas")
        self._required_leader().on_min_insync_replicas_changed(self.min_insync_replicas)
        return []

    def _show(self, _command: Command) -> list[str]:
        self.shows_everybody = True
        return []

    def _effects(self, effects: Effects) -> list[str]:
        leader = self._required_leader()
        seen: list[str] = []
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                assert effect.expected_version == self.isr_version
                self.isr = effect.isr
                self.isr_version += 1
                seen += [
                    f"broker {leader.broker}: propose isr={_joined(effect.isr)}",
                    f"controller: isr={_joined(effect.isr)} epoch={effect.leader_epoch}",
                ]
                changed = leader.on_isr_changed(
                    self.isr, version=self.isr_version, now_ms=self.now_ms
                )
                seen += self._effects(changed)
        self.replicas[leader.broker].high_watermark = leader.high_watermark
        return seen + self._acknowledge(leader)

    def _acknowledge(self, leader: PartitionLeader) -> list[str]:
        seen: list[str] = []
        for end in list(self.waiting):
            code = leader.acknowledgement(end)
            if code is not None:
                self.waiting.remove(end)
                said = "acknowledged" if code is ErrorCode.NONE else code.name
                seen.append(f"producer: {said} end={end}")
        return seen

    def _required_leader(self) -> PartitionLeader:
        assert self.leader is not None, "this command needs a leader"
        return self.leader

    def _live(self) -> dict[BrokerId, int]:
        return {
            broker: replica.broker_epoch
            for broker, replica in self.replicas.items()
            if replica.is_up
        }


def _id(command: Command, key: str) -> BrokerId:
    return BrokerId(command.number(key))


def _ids(text: str) -> list[BrokerId]:
    return [BrokerId(int(part)) for part in text.split(",")]


def _joined(brokers: frozenset[BrokerId]) -> str:
    return ",".join(str(broker) for broker in sorted(brokers))
