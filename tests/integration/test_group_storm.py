"""A storm in one group: 200 members join, leave and vanish while a broker is restarted (P3).

No partition is owned twice, none is nobody's when it is over, and committed offsets never go back,
by the classic protocol and by the consumer protocol. Members are those of the simulator, over real
sockets to real brokers.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.support.confluent import only
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers
from tidelog.base.ids import TopicPartition
from tidelog.broker.network import SocketNetwork
from tidelog.broker.peers import Address
from tidelog.sim.checkers.groups import GroupsChecker
from tidelog.sim.classic_member import ClassicMember
from tidelog.sim.client import SimulatedClient
from tidelog.sim.consumer_member import ConsumerMember
from tidelog.sim.coordinated import Unanswered
from tidelog.sim.group_ledger import GroupLedger
from tidelog.sim.group_member import GroupMember, Pace
from tidelog.sim.observation import PromiseBroken

CLASSIC, CONSUMER = "classic", "consumer"
GROUP = "storm"
TOPIC = "weather"
PARTITION_COUNT = 240
MEMBER_COUNT = 200
SEED = 20261116
CALM_WITHIN_S = 90.0
# A generation of the classic protocol takes as long as its slowest member; an epoch does not.
LIFE_S = {CLASSIC: (15.0, 150.0), CONSUMER: (5.0, 50.0)}
VANISHED_MIN = MEMBER_COUNT // 10
POLITE_SHARE = 0.8
PACE = Pace(
    session_timeout_ms=6_000,
    rebalance_timeout_ms=3_000,
    pause_min_s=0.3,
    pause_max_s=1.2,
    leave_share=0.0,
    silent_share=0.0,
)


@dataclass(frozen=True, slots=True)
class Somebody:
    name: str
    random: Random
    loop: asyncio.AbstractEventLoop


class FailTheTest:
    def fail(self, promise: str, detail: str) -> PromiseBroken:
        return PromiseBroken(f"{promise}: {detail}")


def answers_as_coordinator(_group: str, _address: Address) -> bool:
    """Whoever answers coordinates: brokers are killed here, and none is cut off from the others."""
    return True


class Storm:
    """Members that live for a while, and are followed by others until it is over."""

    def __init__(self, addresses: Sequence[Address], protocol: str) -> None:
        self._addresses = addresses
        self._protocol = protocol
        self._life_s = LIFE_S[protocol]
        self._random = Random(SEED)
        self.ledger = GroupLedger()
        self.members: list[GroupMember] = []
        self.vanished_count = 0
        self._is_over = False

    async def live(self, number: int) -> None:
        """One member after the other; some of them go without a word when their time is up."""
        loop = asyncio.get_running_loop()
        life = 0
        while True:
            life += 1
            random = Random(self._random.random())
            somebody = Somebody(f"member-{number}-{life}", random, loop)
            client = SimulatedClient(somebody, SocketNetwork(loop), self._addresses, TOPIC)
            member = self._member(client)
            member.is_resting = self._is_over
            self.members.append(member)
            living = asyncio.ensure_future(member.run())
            try:
                await asyncio.wait([living], timeout=random.uniform(*self._life_s))
                if self._is_over:
                    await living  # Until the test ends.
                living.cancel()
                if random.random() < POLITE_SHARE:
                    with suppress(Unanswered):
                        await member.leave()
            finally:
                living.cancel()
                client.close()
            member.end(loop.time())
            self.members.remove(member)
            self.vanished_count += 1

    def _member(self, client: SimulatedClient) -> GroupMember:
        if self._protocol == CLASSIC:
            return ClassicMember(
                client,
                self.ledger,
                group=GROUP,
                topic=TOPIC,
                partition_count=PARTITION_COUNT,
                pace=PACE,
                is_coordinator=answers_as_coordinator,
            )
        return ConsumerMember(
            client,
            self.ledger,
            group=GROUP,
            topic=TOPIC,
            expression="",
            instance_id=None,
            name_of=lambda _topic_id: TOPIC,
            pace=PACE,
            is_coordinator=answers_as_coordinator,
        )

    def end(self) -> None:
        self._is_over = True
        for member in self.members:
            member.is_resting = True

    @property
    def is_calm(self) -> bool:
        places = [member.place for member in self.members if member.place is not None]
        if len(places) < MEMBER_COUNT or len({place.generation for place in places}) > 1:
            return False
        return sum(len(place.partitions) for place in places) == PARTITION_COUNT


@pytest.fixture
def cluster(tmp_path: Path) -> ThreeBrokers:
    settings = {
        "group.initial.rebalance.delay.ms": "500",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": "5",
        "group.consumer.min.session.timeout.ms": str(PACE.session_timeout_ms),
        "group.consumer.session.timeout.ms": str(PACE.session_timeout_ms),
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    return ThreeBrokers(tmp_path, settings)


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_storm_of_members_while_a_broker_restarts(cluster: ThreeBrokers, protocol: str) -> None:
    with cluster:
        new = NewTopic(TOPIC, num_partitions=PARTITION_COUNT, replication_factor=3)
        admin = cluster.admin()
        only(admin.create_topics([new]))
        asyncio.run(weather(cluster, protocol))


async def weather(cluster: ThreeBrokers, protocol: str) -> None:
    addresses = [Address("127.0.0.1", broker.port) for broker in cluster.brokers.values()]
    storm = Storm(addresses, protocol)
    tasks = [asyncio.create_task(storm.live(number)) for number in range(MEMBER_COUNT)]
    try:
        for broker_id in BROKER_IDS:  # Among them is whoever looks after the group.
            await until_more(storm)
            broker = cluster.brokers[broker_id]
            await asyncio.to_thread(broker.kill)
            await until_more(storm)
            await asyncio.to_thread(broker.start)
        await until_more(storm)
        async with asyncio.timeout(CALM_WITHIN_S):
            while storm.vanished_count < VANISHED_MIN:  # noqa: ASYNC110 - lives end by themselves
                await asyncio.sleep(0.1)
        storm.end()
        async with asyncio.timeout(CALM_WITHIN_S):
            while not storm.is_calm:  # noqa: ASYNC110 - two hundred may become calm
                await asyncio.sleep(0.1)
    finally:
        for task in tasks:
            task.cancel()
        places = [member.place for member in storm.members]
        await asyncio.wait(tasks)
    owned = sorted(one for place in places if place for one in place.partitions)
    assert owned == [TopicPartition(TOPIC, number) for number in range(PARTITION_COUNT)]
    checker = GroupsChecker(
        FailTheTest(),
        storm.ledger,
        classic_groups={GROUP} if protocol == CLASSIC else set(),
        consumer_groups={GROUP} if protocol == CONSUMER else set(),
    )
    checker.at_end()
    generations = {one.generation for one in storm.ledger.commits}
    assert len(generations) > 3
    assert len(storm.ledger.commits) > MEMBER_COUNT
    # P16 is about these: who has what, and for how long it is a member.
    assert len(storm.ledger.holdings[GROUP]) > PARTITION_COUNT
    assert sum(map(len, storm.ledger.leases.values())) > MEMBER_COUNT


async def until_more(storm: Storm) -> None:
    """Until somebody has committed in a generation that is new."""
    before = max((one.generation for one in storm.ledger.commits), default=-1)
    async with asyncio.timeout(CALM_WITHIN_S):
        while max((one.generation for one in storm.ledger.commits), default=-1) <= before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
