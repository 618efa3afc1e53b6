"""The groups of a run: members that come, go, are killed and paused, and what they were told.

classic     members of the classic protocol
consumer    members of the consumer protocol, of which some have an instance id, and some subscribe
            to whatever topics there are
changing    members of either protocol, as it comes: the group changes its own with them
"""

from collections.abc import Callable
from functools import partial

from tidelog.base.ids import TopicId, TopicPartition
from tidelog.broker.peers import Address
from tidelog.core.controller import nodes
from tidelog.core.coordinators import partition_of
from tidelog.sim.checkers.groups import GroupsChecker
from tidelog.sim.classic_member import ClassicMember
from tidelog.sim.client import SimulatedClient
from tidelog.sim.consumer_member import ConsumerMember
from tidelog.sim.group_ledger import GroupLedger
from tidelog.sim.group_member import GroupMember, Pace
from tidelog.sim.observation import Cluster
from tidelog.sim.process import Process
from tidelog.sim.world import World

CLASSIC, CONSUMER, CHANGING = "group-classic", "group-consumer", "group-changing"
MEMBERS = {CLASSIC: 3, CONSUMER: 3, CHANGING: 3}
STATIC_MEMBERS = {CONSUMER: 1}
EXPRESSION = "records|other-.*"
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 2
CALM_S = 4.0
KILL_AFTER_MIN_S, KILL_AFTER_MAX_S = 3.0, 25.0
PAUSE_AFTER_MIN_S, PAUSE_AFTER_MAX_S = 1.0, 30.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.5, 6.0
PACE = Pace()

SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(PACE.session_timeout_ms),
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "200",
    "group.consumer.regex.refresh.interval.ms": "10000",
}
"""What brokers are told, so that members are not waited for longer than a run lasts."""

MakeClient = Callable[[Process], SimulatedClient]


class Topics:
    """What there is, as it is stored; also what there was, if anybody asked for its name then."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: dict[TopicId, str] = {}

    def name_of(self, topic_id: TopicId) -> str:
        """Of one that was gone before anybody asked, its id."""
        if topic_id not in self._names:
            self.partition_counts()
        return self._names.setdefault(topic_id, str(topic_id))

    def partition_counts(self) -> dict[str, int]:
        tree = self._cluster.tree
        counts = {}
        for name in tree.children(nodes.TOPICS):
            node = tree.get(nodes.topic_path(name))
            assert node is not None
            topic = nodes.decode_topic(name, node.value)
            self._names[topic.topic_id] = name
            counts[name] = len(topic.replicas)
        return counts

    def is_coordinator(self, group: str, address: Address) -> bool:
        """Whether it leads the partition of the group's records."""
        partition = partition_of(group, OFFSETS_PARTITIONS)
        node = self._cluster.tree.get(nodes.topic_path(OFFSETS_TOPIC))
        state_node = self._cluster.tree.get(nodes.state_path(OFFSETS_TOPIC, partition))
        if node is None or state_node is None:
            return False
        assignment = nodes.decode_topic(OFFSETS_TOPIC, node.value)
        state = nodes.decode_state(
            OFFSETS_TOPIC, partition, assignment, state_node.value, version=state_node.version
        )
        leader = self._cluster.brokers.get(state.leader)
        return leader is not None and leader.host == address.host


class SimulatedGroups:
    """A few groups on one topic. A member that is killed is followed by another."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        *,
        topic: str,
        partition_count: int,
        classic_member: type[ClassicMember],
    ) -> None:
        """`classic_member`: eager ones, or cooperative ones. They do not get along in one group."""
        self._world = world
        self._random = world.random_for("groups")
        self._topic = topic
        self._partition_count = partition_count
        self._classic_class = classic_member
        self._topics = Topics(cluster)
        self._ledger = GroupLedger()
        self._members: dict[str, list[GroupMember]] = {group: [] for group in MEMBERS}
        self._processes: set[Process] = set()
        self._spawned = 0
        self._is_resting = False
        self._last_places: object = None
        self._calm_since_s = 0.0
        self.checker = GroupsChecker(
            cluster, self._ledger, classic_groups={CLASSIC}, consumer_groups={CONSUMER}
        )

    @property
    def commit_count(self) -> int:
        return len(self._ledger.commits)

    def start(self, client: MakeClient) -> None:
        for group, count in MEMBERS.items():
            for number in range(count):
                is_static = number < STATIC_MEMBERS.get(group, 0)
                self._spawn(group, f"instance-{number}" if is_static else None, client)

    def rest(self) -> None:
        """Nobody comes or goes any more, nor commits."""
        self._is_resting = True
        for process in self._processes:
            process.resume()
        for members in self._members.values():
            for member in members:
                member.is_resting = True

    @property
    def is_at_rest(self) -> bool:
        """Whether every member has had its place for longer than a session lasts: of one that is
        gone without a word, nobody knows before that. Then every partition is one member's."""
        places = {
            group: {(id(member), member.place) for member in members}
            for group, members in self._members.items()
        }
        if places != self._last_places:
            self._last_places = places
            self._calm_since_s = self._world.now_s
        if self._world.now_s - self._calm_since_s <= CALM_S:
            return False
        return all(map(self._is_settled, self._members))

    def _is_settled(self, group: str) -> bool:
        members = self._members[group]
        places = [member.place for member in members]
        epochs = {place.generation if place else None for place in places}
        owned = sorted(one for place in places if place for one in place.partitions)
        return len(epochs) == 1 and owned == self._wanted(members)

    def _wanted(self, members: list[GroupMember]) -> list[TopicPartition]:
        """What they subscribe to, together."""
        counts = self._topics.partition_counts()
        by_expression = any(isinstance(one, ConsumerMember) and one.expression for one in members)
        names = {
            name
            for name in counts
            if name == self._topic or (by_expression and name.startswith("other-"))
        }
        return sorted(
            TopicPartition(name, number) for name in names for number in range(counts[name])
        )

    @property
    def unrest(self) -> str:
        """Who has which place, for somebody who waits in vain."""
        places = {
            group: [member.place for member in members]
            for group, members in self._members.items()
            if not self._is_settled(group)
        }
        wanted = {group: self._wanted(self._members[group]) for group in places}
        return f"members have {places}, of {wanted}"

    # -- coming and going ------------------------------------------------------------------------

    def _spawn(self, group: str, instance_id: str | None, client: MakeClient) -> None:
        self._spawned += 1
        is_classic = group == CLASSIC or (group == CHANGING and self._random.random() < 0.5)

        async def take_part(process: Process) -> None:
            member: GroupMember
            if is_classic:
                member = self._classic_member(client(process), group)
            else:
                member = self._consumer_member(client(process), group, instance_id)
            member.is_resting = self._is_resting
            self._members[group].append(member)
            process.at_end(partial(self._on_end, group, member))
            await member.run()

        process = self._world.spawn(f"member-{self._spawned}", take_part)
        self._processes.add(process)
        later = self._world.call_later
        random = self._random
        later(random.uniform(PAUSE_AFTER_MIN_S, PAUSE_AFTER_MAX_S), self._pause, process)
        later(
            random.uniform(KILL_AFTER_MIN_S, KILL_AFTER_MAX_S),
            partial(self._replace, process, group, instance_id, client),
        )

    def _classic_member(self, client: SimulatedClient, group: str) -> GroupMember:
        return self._classic_class(
            client,
            self._ledger,
            group=group,
            topic=self._topic,
            partition_count=self._partition_count,
            pace=PACE,
            is_coordinator=self._topics.is_coordinator,
        )

    def _consumer_member(
        self, client: SimulatedClient, group: str, instance_id: str | None
    ) -> GroupMember:
        return ConsumerMember(
            client,
            self._ledger,
            group=group,
            topic=self._topic,
            expression=EXPRESSION if group == CONSUMER else "",
            instance_id=instance_id,
            name_of=self._topics.name_of,
            pace=PACE,
            is_coordinator=self._topics.is_coordinator,
        )

    def _on_end(self, group: str, member: GroupMember) -> None:
        self._members[group].remove(member)
        member.end(self._world.now_s)

    def _pause(self, process: Process) -> None:
        if self._is_resting or not process.is_alive:
            return
        process.pause()
        self._world.call_later(
            self._random.uniform(PAUSE_MIN_S, PAUSE_MAX_S), partial(_resume, process)
        )

    def _replace(
        self, process: Process, group: str, instance_id: str | None, client: MakeClient
    ) -> None:
        if self._is_resting or not process.is_alive:
            return
        process.kill()
        self._processes.discard(process)
        self._spawn(group, instance_id, client)


def _resume(process: Process) -> None:
    if process.is_alive:
        process.resume()
