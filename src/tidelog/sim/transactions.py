"""The transactional producers of a run: several lives of each, and a reader of what they commit.

A producer is killed now and then, and its next life takes its transactional id over. Sometimes it
is not killed, and lives on beside the next as one that has been fenced; or it is overtaken before
it ends a transaction, and does so while the next life has one of its own.

Others die for good, in the middle of a transaction, and nobody takes their id over: readers wait
behind what they wrote until the coordinator aborts it.
"""

from collections.abc import Callable
from functools import partial

from tidelog.sim.checkers.transactions import TransactionsChecker
from tidelog.sim.client import REQUEST_TIMEOUT_MS, SimulatedClient
from tidelog.sim.observation import Cluster
from tidelog.sim.process import Process
from tidelog.sim.transaction_ledger import TransactionLedger
from tidelog.sim.transaction_reader import CommittedReader
from tidelog.sim.transactor import TIMEOUT_MS, SimulatedTransactor
from tidelog.sim.world import World

TRANSACTIONAL_IDS = ("txn-a", "txn-b")
ABANDONED_IDS = ("txn-x", "txn-y")
ALL_IDS = (*TRANSACTIONAL_IDS, *ABANDONED_IDS)
ABANDONED_AFTER_MAX_S = 50.0
LIFE_MIN_S, LIFE_MAX_S = 3.0, 20.0
TIMEOUTS_MS = (TIMEOUT_MS, 20_000)
"""Of transactions: one that outlives most pauses of brokers is the longer one."""
PATIENCE_MS = (1_200, REQUEST_TIMEOUT_MS)
"""How long a producer waits for an answer: shorter than any session of a broker, or as long."""
LIVES_ON_SHARE = 0.2
LATE_SHARE = 0.2
NUMBERS_OF_A_LIFE = 10_000
"""So that a life that goes on beside the next uses no number of the other's."""

MakeClient = Callable[[Process], SimulatedClient]


class SimulatedTransactions:
    """Who takes part, and who looks at it."""

    def __init__(self, world: World, cluster: Cluster, *, topic: str, partition_count: int) -> None:
        self._world = world
        self._random = world.random_for("transactions")
        self._topic = topic
        self._partition_count = partition_count
        self.ledger = TransactionLedger()
        self._lives = dict.fromkeys(TRANSACTIONAL_IDS, 0)
        self._newest: dict[str, SimulatedTransactor] = {}
        self._is_resting = False
        self.readers: list[CommittedReader] = []
        self.checker = TransactionsChecker(
            cluster,
            self.ledger,
            self.readers,
            groups={one: group_of(one) for one in ALL_IDS},
        )

    def start(self, client: MakeClient) -> None:
        for transactional_id in TRANSACTIONAL_IDS:
            self._spawn(transactional_id, client)
        for transactional_id in ABANDONED_IDS:
            self._world.call_later(
                self._random.uniform(0.0, ABANDONED_AFTER_MAX_S),
                partial(self._spawn_abandoned, transactional_id, client),
            )
        self._world.spawn("reader-0", partial(self._read, client))

    async def _read(self, client: MakeClient, process: Process) -> None:
        reader = CommittedReader(
            client(process),
            topic=self._topic,
            partition_count=self._partition_count,
            groups=[group_of(one) for one in ALL_IDS],
        )
        self.readers.append(reader)
        await reader.run()

    def rest(self) -> None:
        self._is_resting = True
        for transactor in self._newest.values():
            transactor.is_stopping = True

    @property
    def is_at_rest(self) -> bool:
        return all(one.is_done for one in self._newest.values()) and self.checker.is_settled

    @property
    def unrest(self) -> str:
        done = {name: one.is_done for name, one in self._newest.items()}
        return f"transactional producers are done: {done}, {self.checker.unrest}"

    def _spawn(self, transactional_id: str, client: MakeClient) -> None:
        life = self._lives[transactional_id]
        self._lives[transactional_id] = life + 1
        is_version_2 = self._random.random() < 0.5
        timeout_ms = self._random.choice(TIMEOUTS_MS)
        patience_ms = self._random.choice(PATIENCE_MS)

        async def transact(process: Process) -> None:
            speaker = client(process)
            speaker.timeout_ms = patience_ms
            transactor = self._transactor(
                speaker,
                transactional_id,
                life=life,
                timeout_ms=timeout_ms,
                is_version_2=is_version_2,
            )
            transactor.is_stopping = self._is_resting
            self._newest[transactional_id] = transactor
            await transactor.run()

        process = self._world.spawn(f"{transactional_id}-life-{life}", transact)
        self._world.call_later(
            self._random.uniform(LIFE_MIN_S, LIFE_MAX_S),
            partial(self._replace, process, transactional_id, client),
        )

    def _spawn_abandoned(self, transactional_id: str, client: MakeClient) -> None:
        is_version_2 = self._random.random() < 0.5

        async def transact(process: Process) -> None:
            transactor = self._transactor(
                client(process),
                transactional_id,
                life=0,
                timeout_ms=TIMEOUT_MS,
                is_version_2=is_version_2,
            )
            await transactor.run_until_it_dies()

        if not self._is_resting:
            self._world.spawn(f"{transactional_id}-abandoned", transact)

    def _transactor(
        self,
        client: SimulatedClient,
        transactional_id: str,
        *,
        life: int,
        timeout_ms: int,
        is_version_2: bool,
    ) -> SimulatedTransactor:
        return SimulatedTransactor(
            client,
            self.ledger,
            transactional_id=transactional_id,
            group=group_of(transactional_id),
            topic=self._topic,
            partition_count=self._partition_count,
            first_number=life * NUMBERS_OF_A_LIFE,
            timeout_ms=timeout_ms,
            is_version_2=is_version_2,
        )

    def _replace(self, process: Process, transactional_id: str, client: MakeClient) -> None:
        if self._is_resting:
            return
        transactor = self._newest[transactional_id]
        kind = self._random.random()
        if kind < LATE_SHARE:
            transactor.be_overtaken = partial(
                self._world.call_later, 0.0, self._overtake, process, transactional_id, client
            )
        elif kind < LATE_SHARE + LIVES_ON_SHARE:
            self._overtake(process, transactional_id, client)
        else:
            _kill(process)
            transactor.is_superseded = True
            self._spawn(transactional_id, client)

    def _overtake(self, process: Process, transactional_id: str, client: MakeClient) -> None:
        """It goes on for a while, beside the next."""
        transactor = self._newest[transactional_id]
        transactor.be_overtaken = None
        if self._is_resting:
            return
        transactor.is_superseded = True
        self._world.call_later(self._random.uniform(0.5, 4.0), partial(_kill, process))
        self._spawn(transactional_id, client)


def _kill(process: Process) -> None:
    if process.is_alive:
        process.kill()


def group_of(transactional_id: str) -> str:
    """The group whose offsets a producer's transactions commit."""
    return f"{transactional_id}-offsets"
