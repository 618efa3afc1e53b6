"""One run: a cluster, a workload, faults, and checkers that watch; everything from one seed.

start ──▶ topic ──▶ workload and faults for some minutes ──▶ mended ──▶ available again?
                                                                          │
       checkers look at everything once more ◀── at rest ◀── producers stop
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tidelog.base.errors import ErrorCode, StorageError, TidelogError
from tidelog.broker.peers import Address
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, is_compiled
from tidelog.config.replication import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from tidelog.core.controller.names import INTERNAL_TOPICS
from tidelog.core.controller.requests import NewTopic
from tidelog.sim.batch_producer import ProducerPlan
from tidelog.sim.batches import ACKS_ALL
from tidelog.sim.brokers import PORT, SimulatedBroker
from tidelog.sim.checkers.committed import CommittedChecker
from tidelog.sim.checkers.high_watermark import HighWatermarkChecker
from tidelog.sim.checkers.isr_holds_committed import IsrHoldsCommittedChecker
from tidelog.sim.checkers.leader_completeness import LeaderCompletenessChecker
from tidelog.sim.checkers.one_leader_per_epoch import OneLeaderPerEpochChecker
from tidelog.sim.checkers.records import RecordsChecker
from tidelog.sim.checkers.session_loss import SessionLossChecker
from tidelog.sim.checkers.told_is_committed import ToldIsCommittedChecker
from tidelog.sim.checkers.topics import TopicsChecker
from tidelog.sim.classic_member import ClassicMember
from tidelog.sim.client import SimulatedClient
from tidelog.sim.cooperative_member import CooperativeMember
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.duplicates import TOPIC_CONFIGS, SimulatedDuplicates
from tidelog.sim.faults.plan import FaultPlan
from tidelog.sim.faults.scene import COORDINATOR, Scene
from tidelog.sim.faults.schedule import Faults
from tidelog.sim.groups import OFFSETS_PARTITIONS, SimulatedGroups
from tidelog.sim.groups import SETTINGS as GROUP_SETTINGS
from tidelog.sim.guests import Guest
from tidelog.sim.ledger import Ledger
from tidelog.sim.links import same_machine, same_rack
from tidelog.sim.log_dir_moves import ONE_LOG_DIR, LogDirPlan, SimulatedLogDirMoves
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.observation import Checker, Cluster, Observation
from tidelog.sim.operations import OperationPlan, Operations
from tidelog.sim.process import Process
from tidelog.sim.transactions import SimulatedTransactions
from tidelog.sim.workload import SimulatedConsumer, SimulatedProducer
from tidelog.sim.world import NeverHappened, World

TOPIC = "records"
RACKS = ("a", "b", "c")
PARTITION_COUNT = 2
REPLICA_LAG_TIME_MAX_MS = 3_000
UNCLEAN_SHARE = 0.1
START_WITHIN_S = 60.0
AVAILABLE_WITHIN_S = 60.0
AT_REST_WITHIN_S = 60.0
HISTORY_LINES_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What to simulate."""

    seed: int
    broker_count: int
    duration_s: float
    settings: Mapping[str, str] = field(default_factory=dict)
    guests: frozenset[Guest] = frozenset()
    """Who uses the cluster besides producers and consumers."""
    aims_at_coordinators: bool = False
    """Whether faults that are aimed at leaders are aimed at those of internal topics as well."""

    @property
    def needs_every_record(self) -> bool:
        """Whether a coordinator takes part: what it knows is not looked at by those who excuse a
        loss of records."""
        return bool(self.guests - {Guest.LOG_DIRS})

    @property
    def is_compiled(self) -> bool:
        """Whether brokers take the compiled shortcuts: with even seeds, where there are any."""
        return self.seed % 2 == 0 and is_compiled()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of it. `failure` is None if every promise held."""

    seed: int
    is_compiled: bool
    failure: str | None
    history: str
    digest: int
    sent: int
    acknowledged: int
    consumed: int
    faults: Mapping[str, int]
    excused: int
    callbacks: int


class Simulation:
    """Builds everything a run needs; `run` runs it to its end."""

    def __init__(self, world: World, plan: RunPlan) -> None:
        self._world = world
        self._plan = plan
        chance = world.random_for("plan")
        self._network = SimulatedNetwork(
            world,
            between=same_rack(),
            within=same_machine(),
            connect_timeout_s=10.0,
            window_bytes=2**18,
        )
        session_timeout_ms = chance.choice([2_000, 4_000])
        self._coordination = SimulatedCoordinatorService(
            world,
            self._network,
            host=COORDINATOR,
            session_timeout_ms=session_timeout_ms,
            notices_death=chance.random() < 0.5,
        )
        self._min_isr = chance.choice(["1", "2", "2", "2"])
        self._allows_unclean = chance.random() < UNCLEAN_SHARE and not plan.needs_every_record
        log_dirs = LogDirPlan.draw(world.random_for("log dirs"))
        if Guest.LOG_DIRS not in plan.guests:
            log_dirs = ONE_LOG_DIR
        racks = self._racks(world.random_for("racks"))
        self.ledger = Ledger()
        self._brokers = {
            broker_id: SimulatedBroker(
                world,
                self._network,
                self._coordination,
                broker_id,
                {
                    **self._settings(chance),
                    **log_dirs.settings,
                    **plan.settings,
                    **racks[broker_id],
                },
                SHORTCUTS if plan.is_compiled else NO_SHORTCUTS,
                log_dir_count=log_dirs.count,
                disk_work_max_s=log_dirs.work_max_s,
            )
            for broker_id in range(1, plan.broker_count + 1)
        }
        self.cluster = Cluster(
            world,
            self._coordination,
            self._brokers,
            self.ledger,
            topic=TOPIC,
            partition_count=PARTITION_COUNT,
            allow_unclean=self._allows_unclean,
        )
        self.operations = Operations(world, self.cluster, OperationPlan.draw(chance))
        self._producers: list[SimulatedProducer] = []
        self._plans = _producer_plans(chance)
        self._checkers: list[Checker] = [
            OneLeaderPerEpochChecker(self.cluster),
            HighWatermarkChecker(self.cluster),
            CommittedChecker(self.cluster),
            IsrHoldsCommittedChecker(self.cluster),
            LeaderCompletenessChecker(self.cluster),
            ToldIsCommittedChecker(self.cluster),
            SessionLossChecker(self.cluster),
            TopicsChecker(self.cluster, self.operations),
            RecordsChecker(
                self.cluster,
                idempotent_producers=[
                    f"producer-{number}"
                    for number, one in enumerate(self._plans)
                    if one.is_idempotent
                ],
            ),
        ]
        self._guests: list[
            SimulatedGroups | SimulatedTransactions | SimulatedDuplicates | SimulatedLogDirMoves
        ] = []
        if plan.guests & {Guest.GROUPS, Guest.COOPERATIVE}:
            is_cooperative = Guest.COOPERATIVE in plan.guests
            self._guests.append(
                SimulatedGroups(
                    world,
                    self.cluster,
                    topic=TOPIC,
                    partition_count=PARTITION_COUNT,
                    classic_member=CooperativeMember if is_cooperative else ClassicMember,
                )
            )
        if Guest.TRANSACTIONS in plan.guests:
            self._guests.append(
                SimulatedTransactions(
                    world, self.cluster, topic=TOPIC, partition_count=PARTITION_COUNT
                )
            )
        if Guest.DUPLICATES in plan.guests:
            self._guests.append(
                SimulatedDuplicates(
                    world, self.cluster, topic=TOPIC, partition_count=PARTITION_COUNT
                )
            )
        if Guest.LOG_DIRS in plan.guests:
            self._guests.append(
                SimulatedLogDirMoves(
                    world, self.cluster, topic=TOPIC, partition_count=PARTITION_COUNT
                )
            )
        self._checkers += [guest.checker for guest in self._guests]
        scene = Scene(
            world,
            self._network,
            self._coordination,
            self.cluster,
            FaultPlan.draw(
                chance,
                plan.broker_count,
                session_timeout_s=session_timeout_ms / 1_000,
                replica_lag_time_max_s=REPLICA_LAG_TIME_MAX_MS / 1_000,
                cuts_power=not plan.needs_every_record,
                aimed_topics=(
                    (TOPIC, *sorted(INTERNAL_TOPICS)) if plan.aims_at_coordinators else (TOPIC,)
                ),
            ),
        )
        self.faults = Faults(scene, self.operations)

    def _settings(self, chance: Random) -> dict[str, str]:
        return {
            "default.replication.factor": str(min(3, self._plan.broker_count)),
            "min.insync.replicas": self._min_isr,
            "unclean.leader.election.enable": str(self._allows_unclean).lower(),
            "replica.lag.time.max.ms": str(REPLICA_LAG_TIME_MAX_MS),
            "replica.fetch.backoff.ms": "200",
            "log.roll.ms": str(chance.choice([400, 5_000, 10**9])),
            "log.flush.interval.messages": str(chance.choice([1, 50, 2**62])),
            "tidelog.log.dir.retry.ms": "500",
            "tidelog.replica.bulk.bytes": str(chance.choice([1, 500, 32_768])),
            "log.flush.offset.checkpoint.interval.ms": "2000",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "offsets.topic.replication.factor": str(min(3, self._plan.broker_count)),
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": str(min(3, self._plan.broker_count)),
            "transaction.state.log.min.isr": self._min_isr,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            **GROUP_SETTINGS,
            **self._plan.settings,
        }

    def _racks(self, chance: Random) -> dict[int, dict[str, str]]:
        """Where each broker stands, and whether leaders send consumers to who is near them."""
        selector = chance.choice([LEADER_SELECTOR, RACK_AWARE_SELECTOR])
        return {
            broker_id: {"broker.rack": chance.choice(RACKS), "replica.selector.class": selector}
            for broker_id in range(1, self._plan.broker_count + 1)
        }

    @property
    def counts(self) -> dict[str, int]:
        """What was done to the cluster, and how often."""
        counts = {**self.faults.counts, **self.operations.counts}
        for guest in self._guests:
            if isinstance(guest, SimulatedLogDirMoves):
                counts |= guest.counts
        return counts

    def run(self) -> None:
        """Raises PromiseBroken or NeverHappened."""
        world = self._world
        for broker in self._brokers.values():
            broker.start()
        world.run_until(
            lambda: all(broker.is_ready for broker in self._brokers.values()),
            within_s=START_WITHIN_S,
        )
        self._create_topic()
        Observation(self.cluster, self._checkers)
        self._start_workload()
        world.run_for(1.0)
        self.faults.start()
        self.operations.start()
        world.run_for(self._plan.duration_s)
        self.faults.stop()
        self.operations.stop()
        world.trace.note("faults", "over; everything is mended", {})
        self._become_available()
        self._come_to_rest()
        self._require_no_failures()
        for checker in self._checkers:
            checker.at_end()

    def _create_topic(self) -> None:
        controller = self.cluster.controller()
        assert controller is not None
        assert controller.broker is not None
        assert controller.process is not None
        requests = controller.broker.requests
        codes: list[ErrorCode] = []

        async def create() -> None:
            new = NewTopic(
                name=TOPIC,
                partition_count=PARTITION_COUNT,
                replication_factor=min(3, self._plan.broker_count),
                configs=TOPIC_CONFIGS if Guest.DUPLICATES in self._plan.guests else (),
            )
            outcomes = await requests.create_topics([new], validate_only=False)
            codes.extend(outcome.error for outcome in outcomes)

        task = controller.process.loop.create_task(create())
        self._world.run_until(task.done, within_s=START_WITHIN_S)
        assert codes == [ErrorCode.NONE], codes

    def _start_workload(self) -> None:
        addresses = [Address(broker.host, PORT) for broker in self._brokers.values()]

        def client(process: Process) -> SimulatedClient:
            return SimulatedClient(
                process, self._network.attach(process, process.name), addresses, TOPIC
            )

        async def produce(plan: ProducerPlan, process: Process) -> None:
            producer = SimulatedProducer(
                client(process),
                plan,
                self.ledger,
                topic=TOPIC,
                partition_count=PARTITION_COUNT,
                has_keys="compact" in self._plan.settings.get("log.cleanup.policy", ""),
            )
            self._producers.append(producer)
            await producer.run()

        async def consume(racks: Sequence[str], process: Process) -> None:
            await SimulatedConsumer(
                client(process),
                self.ledger,
                topic=TOPIC,
                partition_count=PARTITION_COUNT,
                racks=racks,
            ).run()

        for number, plan in enumerate(self._plans):
            self._world.spawn(f"producer-{number}", partial(produce, plan))
        self._world.spawn("consumer-0", partial(consume, ()))
        self._world.spawn("consumer-1", partial(consume, RACKS))
        for guest in self._guests:
            guest.start(client)

    def _become_available(self) -> None:
        """Faults are over: writes are acknowledged again, everywhere, and everybody is in sync."""
        since_s = self._world.now_s

        def is_available() -> bool:
            self._require_no_failures()
            self._start_what_ended()
            for partition in range(PARTITION_COUNT):
                if self.ledger.last_acknowledged_s.get(partition, -1.0) < since_s:
                    return False
                state = self.cluster.state(partition)
                if state is None or set(state.replicas) != set(self.operations.all_replicas):
                    return False
            return self.cluster.half_done() is None

        try:
            self._world.run_until(is_available, within_s=AVAILABLE_WITHIN_S)
        except NeverHappened:
            states = [self.cluster.state(partition) for partition in range(PARTITION_COUNT)]
            raise self.cluster.fail(
                "available again after faults",
                f"not within {AVAILABLE_WITHIN_S:g} s after {since_s:.1f}: {states}, last "
                f"acknowledged {self.ledger.last_acknowledged_s}, {self.cluster.half_done()}",
            ) from None

    def _start_what_ended(self) -> None:
        """As a supervisor does: a broker that could not start while things were broken may now."""
        for broker in self._brokers.values():
            if not broker.is_running:
                broker.start()

    def _come_to_rest(self) -> None:
        for producer in self._producers:
            producer.is_stopping = True
        for guest in self._guests:
            guest.rest()

        def is_at_rest() -> bool:
            self._start_what_ended()  # One that was asked to stop may have taken until now.
            if not all(producer.is_done for producer in self._producers):
                return False
            if not all(guest.is_at_rest for guest in self._guests):
                return False
            return all(self._is_equal(partition) for partition in range(PARTITION_COUNT))

        try:
            self._world.run_until(is_at_rest, within_s=AT_REST_WITHIN_S)
        except NeverHappened:
            for guest in self._guests:
                if not guest.is_at_rest:
                    raise self.cluster.fail("everybody comes to rest", guest.unrest) from None
            ends = [self._ends(partition) for partition in range(PARTITION_COUNT)]
            waiting = [one for one in self._producers if not one.is_done]
            raise self.cluster.fail(
                "replicas become equal when nobody writes",
                f"log end and high watermark by broker are {ends}, {len(waiting)} producers wait",
            ) from None
        self._world.run_for(1.0)

    def _is_equal(self, partition: int) -> bool:
        ends = set(self._ends(partition).values())
        return len(ends) == 1 and None not in ends

    def _ends(self, partition: int) -> dict[int, tuple[int, int] | None]:
        """Log end and high watermark of each replica; None if it is not served."""
        ends: dict[int, tuple[int, int] | None] = {}
        for broker_id in self.operations.all_replicas:
            runner = self._brokers[broker_id].runner(TOPIC, partition)
            if runner is None or runner.is_offline:
                ends[broker_id] = None
            else:
                ends[broker_id] = (runner.log.log_end_offset, runner.high_watermark)
        return ends

    def _require_no_failures(self) -> None:
        for process in self._world.processes:
            failure = process.failure
            if failure is not None and not _is_expected(failure):
                raise AssertionError(f"{process.name} failed: {failure!r}") from failure


def _is_expected(failure: BaseException) -> bool:
    """A broker may refuse to start or end by itself for reasons that lie outside of it."""
    if isinstance(failure, BaseExceptionGroup):
        return all(map(_is_expected, failure.exceptions))
    return isinstance(failure, TidelogError)


def _producer_plans(chance: Random) -> list[ProducerPlan]:
    pause_max_s = chance.choice([0.1, 0.3])
    return [
        ProducerPlan(
            acks=ACKS_ALL,
            is_idempotent=True,
            attempts_max=None,
            pause_max_s=pause_max_s,
            batch_sizes=range(1, 4),
        ),
        ProducerPlan(
            acks=ACKS_ALL,
            is_idempotent=False,
            attempts_max=None,
            pause_max_s=pause_max_s,
            batch_sizes=range(1, 4),
        ),
        ProducerPlan(
            acks=1,
            is_idempotent=False,
            attempts_max=3,
            pause_max_s=2 * pause_max_s,
            batch_sizes=range(1, 3),
        ),
        ProducerPlan(
            acks=0,
            is_idempotent=False,
            attempts_max=1,
            pause_max_s=2 * pause_max_s,
            batch_sizes=range(1, 3),
        ),
    ]


def simulate(plan: RunPlan, *, log_level: int = logging.INFO) -> RunResult:
    """Run one seed. The same plan gives the same result, whatever else this process has done."""
    with World(plan.seed, lines_max=HISTORY_LINES_MAX) as world, world.capturing_logs(log_level):
        simulation = Simulation(world, plan)
        failure: str | None = None
        try:
            simulation.run()
        except AssertionError as broken:
            # A promise that a checker watches, or one that a machine asserts of itself.
            failure = str(broken) or repr(broken)
        except StorageError as error:
            # A checker has read what a broker takes for its log.
            failure = f"a replica can be read: {error}"
        if failure is not None:
            world.trace.note("checker", failure, {})
        return RunResult(
            seed=plan.seed,
            is_compiled=plan.is_compiled,
            failure=failure,
            history=world.trace.history(),
            digest=world.trace.digest,
            sent=simulation.ledger.sent_count,
            acknowledged=len(simulation.ledger.acknowledged),
            consumed=len(simulation.ledger.consumed),
            faults=simulation.counts,
            excused=len(simulation.cluster.excuses.partitions),
            callbacks=world.callback_count,
        )
