"""A transactional producer on a small cluster of its own, and those who look at what becomes of it.

    broker-1   controller, leader of output-1
    broker-2   coordinator of the transaction
    broker-3   leader of output-0
    broker-4   coordinator of the group

Each of these leads, and two of the others follow.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from tests.support.commit_steps import Steps
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.broker.internal_topics import internal_topic
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.peers import Address
from tidelog.config.broker import BrokerConfig
from tidelog.core.controller.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.core.controller.requests import USE_DEFAULT, NewTopic
from tidelog.records.batch import iter_headers
from tidelog.records.record import decode_records
from tidelog.records.transactions import IDLE, TransactionMetadata
from tidelog.sim.brokers import PORT
from tidelog.sim.checkers.records import contents_of
from tidelog.sim.checkers.transactions import TransactionsChecker
from tidelog.sim.client import SimulatedClient
from tidelog.sim.ledger import Ledger
from tidelog.sim.observation import Cluster
from tidelog.sim.process import Process
from tidelog.sim.transaction_ledger import TransactionLedger
from tidelog.sim.transaction_reader import CommittedReader
from tidelog.sim.transactor import TIMEOUT_MS, SimulatedTransactor
from tidelog.sim.world import NeverHappened
from tidelog.wire.transaction_records import decode_transaction_record

BROKERS = 4
OUTPUT = "output"
PARTITION_COUNT = 2
TRANSACTIONAL_ID = "copier"
GROUP = "copiers"
PRODUCER = "producer"
LONG_TIMEOUT_MS = 60_000
"""Of a transaction that is to outlive any pause."""

HANGS = "the transaction hangs"

ASSIGNMENTS = {
    TRANSACTION_STATE: [(2, 3, 4)],
    CONSUMER_OFFSETS: [(4, 2, 3)],
    OUTPUT: [(3, 4, 2), (1, 3, 2)],
}
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Kind(NamedTuple):
    """How a producer behaves."""

    is_commit: bool
    is_version_2: bool

    def __str__(self) -> str:
        version = "version 2" if self.is_version_2 else "announced"
        return f"{'commit' if self.is_commit else 'abort'}, {version}"


KINDS = [Kind(*one) for one in product((True, False), repeat=2)]


class Hold:
    """A place where a producer waits until it is let go."""

    def __init__(self) -> None:
        self.is_reached = False
        self._let_go = asyncio.Event()

    async def wait(self) -> None:
        self.is_reached = True
        await self._let_go.wait()  # Ended by the test.

    def let_go(self) -> None:
        self._let_go.set()


class Story:
    """One transaction and its next, on a cluster of its own, and those who look at it."""

    def __init__(self, cluster: SimulatedCluster, steps: Steps, kind: Kind) -> None:
        self._cluster = cluster
        self._steps = steps
        self._kind = kind
        self.ledger = TransactionLedger()
        self._readers: list[CommittedReader] = []
        self._seen = Cluster(
            cluster.world,
            cluster.coordination,
            cluster.brokers,
            Ledger(),
            topic=OUTPUT,
            partition_count=PARTITION_COUNT,
            allow_unclean=False,
        )
        self.checker = self._new_checker()
        cluster.world.spawn("reader", self._read)

    def _new_checker(self) -> TransactionsChecker:
        """Knows of nothing that has come to rest before."""
        return TransactionsChecker(
            self._seen,
            self.ledger,
            self._readers,
            groups={TRANSACTIONAL_ID: GROUP},
        )

    async def _read(self, process: Process) -> None:
        reader = CommittedReader(
            self._client(process), topic=OUTPUT, partition_count=PARTITION_COUNT, groups=[GROUP]
        )
        self._readers.append(reader)
        await reader.run()

    def produce(self, *, is_commit: bool, number: int, name: str) -> Process:
        """A process that does one transaction with this number, and ends."""
        self.checker = self._new_checker()

        async def transact(process: Process) -> None:
            transactor = self._transactor(process, first_number=number, timeout_ms=TIMEOUT_MS)
            await transactor.run_once(is_commit=is_commit, on_begun=self._steps.begin)

        return self._cluster.world.spawn(name, transact)

    def produce_twice(self, *, is_commit: bool, hold: "Hold") -> Process:
        """A process that does two transactions and ends; within the second it is held."""

        async def transact(process: Process) -> None:
            transactor = self._transactor(process, first_number=0, timeout_ms=LONG_TIMEOUT_MS)
            await transactor.run_twice(
                is_commit=is_commit, on_begun=self._steps.begin, while_open=hold.wait
            )

        return self._cluster.world.spawn(PRODUCER, transact)

    def _transactor(
        self, process: Process, *, first_number: int, timeout_ms: int
    ) -> SimulatedTransactor:
        return SimulatedTransactor(
            self._client(process),
            self.ledger,
            transactional_id=TRANSACTIONAL_ID,
            group=GROUP,
            topic=OUTPUT,
            partition_count=PARTITION_COUNT,
            first_number=first_number,
            timeout_ms=timeout_ms,
            is_version_2=self._kind.is_version_2,
        )

    def _client(self, process: Process) -> SimulatedClient:
        network = self._cluster.network.attach(process, process.name)
        addresses = [Address(one.host, PORT) for one in self._cluster.brokers.values()]
        return SimulatedClient(process, network, addresses, OUTPUT)

    # -- what became of it -----------------------------------------------------------------------

    def settle(self, producer: Process) -> None:
        """Wait until the producer has ended and its transaction has, everywhere."""
        try:
            self._cluster.until(lambda: not producer.is_alive and self._is_settled)
        except NeverHappened as error:
            raise NeverHappened(f"{HANGS}: {self.state()}, {self.checker.unrest}") from error

    @property
    def _is_settled(self) -> bool:
        """Nothing is open anywhere, and the reader has read all of it."""
        if not self.checker.is_settled or self._is_open(CONSUMER_OFFSETS):
            return False
        state = self.state()
        return state is not None and state.state in IDLE

    def _is_open(self, topic: str) -> bool:
        led = self._led(topic)
        return led is None or led.last_stable_offset < led.log.log_end_offset

    def state(self) -> TransactionMetadata | None:
        """The last that the coordinator's log says, if somebody leads it."""
        led = self._led(TRANSACTION_STATE)
        if led is None:
            return None
        contents = contents_of(led)
        last = None
        for position, header in iter_headers(contents):
            for record in decode_records(contents[position : position + header.size_bytes]):
                assert record.key is not None
                last = decode_transaction_record(record.key, record.value)
        assert last is None or isinstance(last, TransactionMetadata)
        return last

    def _led(self, topic: str) -> PartitionRunner | None:
        if not self._cluster.is_led(topic):
            return None
        return self._cluster.runner(self._cluster.state(topic).leader, topic)


@contextmanager
def prepared(kind: Kind) -> Iterator[tuple[SimulatedCluster, Steps, Story]]:
    steps = Steps(PRODUCER, frozenset(ASSIGNMENTS))
    with steps.watched(), simulated_cluster(BROKERS, SETTINGS) as cluster:
        for name in ASSIGNMENTS:
            create(cluster, name)
        yield cluster, steps, Story(cluster, steps, kind)


def create(cluster: SimulatedCluster, name: str) -> None:
    new = NewTopic(name=name)
    if name != OUTPUT:
        config = BrokerConfig.load({**SETTINGS, "node.id": "1"})
        new = internal_topic(name, config)
    new = replace(
        new,
        partition_count=USE_DEFAULT,
        replication_factor=USE_DEFAULT,
        assignments=tuple(
            (number, tuple(map(BrokerId, brokers)))
            for number, brokers in enumerate(ASSIGNMENTS[name])
        ),
    )
    (outcome,) = cluster.ask(lambda requests: requests.create_topics([new], validate_only=False))
    assert outcome.error is ErrorCode.NONE, outcome
    count = len(ASSIGNMENTS[name])
    cluster.until(lambda: all(cluster.is_led(name, number) for number in range(count)))
