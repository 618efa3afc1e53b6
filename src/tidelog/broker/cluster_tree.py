"""The cluster in the coordinator's tree: read whole by a new controller, written change by change.

`core/controller/nodes.py` knows the layout; here it meets a coordinator. Nothing is decided.

Every write of a controller is a transaction that begins with two checks (`Fence`):

    /controller_epoch     has another version if somebody else has become controller since, so a
                          controller that has been succeeded cannot write, however late it learns
                          of it (C3)
    /brokers/generation   has another version if a broker has registered since the brokers were
                          last read, so no state is written without knowledge of who came back.
                          A state that is older than a broker's registration was written before
                          that broker came back, and one that is younger takes it into account:
                          that is how the next controller can tell who has been away (R13).

What a store may not take whole is written in several transactions, in an order in which each part
makes sense by itself; who becomes controller between two of them finishes.

Deleting a topic takes two transactions, because a store may not take a large one whole. The first
marks it below `/admin/delete_topics`, and from then on it does not exist; the second removes its
nodes and the mark. Who becomes controller between the two does the second.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tidelog.base.errors import StorageError
from tidelog.base.ids import NO_BROKER, BrokerId, ControllerEpoch, TopicPartition
from tidelog.coordination.port import (
    BadVersion,
    Check,
    Coordinator,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from tidelog.core.controller import nodes
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    Change,
    ClientConfigChanged,
    GroupConfigChanged,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
)
from tidelog.core.controller.election import first_state
from tidelog.core.controller.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    Settings,
    TopicImage,
)
from tidelog.core.controller.nodes import ProducerIdBlock, TopicAssignment

CONFIG_CHANGES_KEPT = 100
PRODUCER_ID_BLOCK_SIZE = 1_000
# ZooKeeper takes 1 MiB (jute.maxbuffer).
TRANSACTION_BYTES_MAX = 512 * 1024
OPERATION_OVERHEAD_BYTES = 64
MOVES_PER_TRANSACTION_MAX = 500


@dataclass(frozen=True, slots=True)
class Fence:
    """The claim of one controller: its epoch, and the version of the node that says so.

    `generation` is the version of the node that every registration of a broker changes, when the
    brokers were last read; None before that. `token` is in the claim and shows to other brokers
    that who speaks to them as controller can read it.
    """

    epoch: ControllerEpoch
    version: int
    token: bytes
    generation: int | None = None

    @property
    def checks(self) -> list[Operation]:
        epoch = Check(nodes.CONTROLLER_EPOCH, self.version)
        if self.generation is None:
            return [epoch]
        return [epoch, Check(nodes.BROKER_GENERATION, self.generation)]


@dataclass(frozen=True, slots=True)
class Registrations:
    """Who is alive, and the generation of it: any later registration makes it another."""

    brokers: dict[BrokerId, BrokerImage]
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCluster:
    """What the tree holds, and what a controller that died has left to do.

    `written_at`: when each state was written, by the counter that broker epochs are drawn from.
    `stateless`: partitions of a topic that was being created; the image has a first state for
    them, the tree has none. `deleting`: topics marked for deletion; the image has none of them.
    """

    image: ClusterImage
    generation: int
    written_at: Mapping[TopicPartition, int]
    stateless: Sequence[TopicPartition]
    deleting: Sequence[str]


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """Transactions, and what will be known of settings once they are stored."""

    transactions: list[list[Operation]]
    config_nodes: list[str]
    config_changes: list[int]


@dataclass(slots=True)
class _Topics:
    topics: dict[str, TopicImage] = field(default_factory=dict)
    written_at: dict[TopicPartition, int] = field(default_factory=dict)
    stateless: list[TopicPartition] = field(default_factory=list)


class AnotherCluster(StorageError):
    """The tree is not that of the cluster to which this broker belongs."""


class ClusterTree:
    """Reads and writes the tree through one session."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._config_nodes: set[str] = set()
        self._config_changes: list[int] = []

    # -- claims ----------------------------------------------------------------------------------

    async def require(self, cluster_id: str) -> None:
        """AnotherCluster unless this is the tree of that cluster."""
        node = await self._coordinator.get(nodes.CLUSTER_ID)
        found = None if node is None else nodes.decode_cluster_id(node.value)
        if found != cluster_id:
            raise AnotherCluster(
                f"the coordinator has forgotten cluster {cluster_id}"
                if found is None
                else f"the coordinator has cluster {found} in the place of {cluster_id}"
            )

    async def prepare(self, cluster_id: str) -> str:
        """Make the nodes that every cluster has; return the cluster's id.

        That is `cluster_id` only if the cluster has none yet.
        """
        wanted = dict.fromkeys(nodes.PERSISTENT_PATHS, b"")
        wanted[nodes.CONTROLLER_EPOCH] = nodes.NO_CONTROLLER_YET
        wanted[nodes.CLUSTER_ID] = nodes.encode_cluster_id(cluster_id)
        while True:  # Ends when all are there: what another broker makes meanwhile counts too.
            found = await self._coordinator.get_many(list(wanted))
            present = dict(zip(wanted, found, strict=True))
            absent = [path for path, node in present.items() if node is None]
            if not absent:
                node = _required(nodes.CLUSTER_ID, present[nodes.CLUSTER_ID])
                return nodes.decode_cluster_id(node.value)
            try:
                await self._coordinator.transact([Create(path, wanted[path]) for path in absent])
            except NodeExists:
                continue

    async def register(self, broker: BrokerImage, *, now_ms: int) -> None:
        """Say that this broker is alive; NodeExists if somebody says so already."""
        await self._coordinator.transact(
            [
                Create(
                    nodes.broker_path(broker.broker_id),
                    nodes.encode_broker(broker, now_ms=now_ms),
                    ephemeral=True,
                ),
                Set(nodes.BROKER_GENERATION, b""),
            ]
        )

    async def registration(self, broker_id: BrokerId) -> int | None:
        """The epoch of a broker's registration; None if it has none."""
        node = await self._coordinator.get(nodes.broker_path(broker_id))
        return None if node is None else node.creation_id

    async def claim(self, broker_id: BrokerId, *, token: bytes, now_ms: int) -> Fence | None:
        """Become controller, in a new epoch; None if somebody else is (C3)."""
        while True:  # Ends when somebody is controller; each turn some other broker got further.
            node = await self._get(nodes.CONTROLLER_EPOCH)
            epoch = ControllerEpoch(nodes.decode_controller_epoch(node.value) + 1)
            try:
                await self._coordinator.transact(
                    [
                        Create(
                            nodes.CONTROLLER,
                            nodes.encode_controller(broker_id, token=token, now_ms=now_ms),
                            ephemeral=True,
                        ),
                        Set(
                            nodes.CONTROLLER_EPOCH,
                            nodes.encode_controller_epoch(epoch),
                            node.version,
                        ),
                    ]
                )
            except NodeExists:
                return await self._own_claim()
            except BadVersion:
                continue
            return Fence(epoch, node.version + 1, token)

    async def _own_claim(self) -> Fence | None:
        """The claim of this session, made before by a write whose answer was lost."""
        claim = await self._coordinator.get(nodes.CONTROLLER)
        if claim is None or claim.owner_session != self._coordinator.session_id:
            return None
        # Nobody has raised the epoch since: it rises with a claim, and this one is still there.
        node = await self._get(nodes.CONTROLLER_EPOCH)
        epoch = nodes.decode_controller_epoch(node.value)
        return Fence(epoch, node.version, nodes.decode_controller(claim.value, epoch).token)

    # -- reading ---------------------------------------------------------------------------------

    async def load(self, cluster_id: str, *, is_controller: bool) -> LoadedCluster:
        """Read everything. Nobody but the controller writes; to others, what is read one after the
        other may be of different moments, but the state of a partition fits its replicas."""
        self._config_nodes.clear()
        claim = await self.controller()
        registrations = await self.registrations()
        brokers = registrations.brokers
        deleting = await self._coordinator.children(nodes.DELETE_TOPICS)
        found = await self._topics(
            brokers, without=frozenset(deleting), is_controller=is_controller
        )
        image = ClusterImage(
            cluster_id=cluster_id,
            controller_id=claim.controller_id,
            controller_epoch=claim.controller_epoch,
            brokers=brokers,
            topics=found.topics,
            topic_names={topic.topic_id: name for name, topic in found.topics.items()},
            topic_configs=await self._configs(nodes.TOPIC_CONFIGS, found.topics),
            broker_configs=await self._broker_configs(),
            client_configs=await self._configs(nodes.CLIENT_CONFIGS, None),
            group_configs=await self._group_configs(),
        )
        changes = await self._coordinator.children(nodes.CONFIG_CHANGES)
        numbers = map(nodes.config_change_number, changes)
        self._config_changes = sorted(number for number in numbers if number is not None)
        return LoadedCluster(
            image=image,
            generation=registrations.generation,
            written_at=found.written_at,
            stateless=found.stateless,
            deleting=deleting,
        )

    async def controller(self) -> nodes.ControllerClaim:
        """Who is controller (NO_BROKER if nobody is) and the newest controller epoch."""
        claim = await self._coordinator.get(nodes.CONTROLLER)
        epoch_node = await self._get(nodes.CONTROLLER_EPOCH)
        epoch = nodes.decode_controller_epoch(epoch_node.value)
        if claim is None:
            return nodes.ControllerClaim(NO_BROKER, epoch, nodes.NO_TOKEN)
        return nodes.decode_controller(claim.value, epoch)

    async def are_states_unchanged(self, versions: Mapping[TopicPartition, int]) -> bool:
        """Whether these partitions' states have these versions, now and in all of the cluster.

        A transaction, because a read may be of a replica of the store that lags behind.
        """
        try:
            await self._coordinator.transact(
                [Check(nodes.state_path(*one), version) for one, version in versions.items()]
            )
        except (BadVersion, NoNode):
            return False
        return True

    async def registrations(self) -> Registrations:
        """Who is alive. Read after the generation: who registers in between is seen, and makes
        the next write fail, which is the safe way round."""
        generation = await self._get(nodes.BROKER_GENERATION)
        ids = [_broker_id(name) for name in await self._coordinator.children(nodes.BROKER_IDS)]
        found = await self._coordinator.get_many([nodes.broker_path(each) for each in ids])
        brokers = {
            broker_id: nodes.decode_broker(broker_id, node.value, broker_epoch=node.creation_id)
            for broker_id, node in zip(ids, found, strict=True)
            if node is not None
        }
        return Registrations(brokers, generation.version)

    async def _topics(
        self,
        brokers: dict[BrokerId, BrokerImage],
        *,
        without: Collection[str],
        is_controller: bool,
    ) -> _Topics:
        listed = await self._coordinator.children(nodes.TOPICS)
        names = [name for name in listed if name not in without]
        found = _Topics()
        while names:
            names = await self._read_topics(names, brokers, found, is_controller=is_controller)
        return found

    async def _read_topics(
        self,
        names: Sequence[str],
        brokers: dict[BrokerId, BrokerImage],
        found: _Topics,
        *,
        is_controller: bool,
    ) -> list[str]:
        """Read these into `found`. Returns those that have to be read again.

        Who moves replicas writes a topic's node and the states of its partitions at once, but they
        are read one after the other. If the node is still the same afterwards, the states fit it.
        """
        paths = [nodes.topic_path(name) for name in names]
        before = dict(zip(names, await self._coordinator.get_many(paths), strict=True))
        read = {
            name: nodes.decode_topic(name, node.value)
            for name, node in before.items()
            if node is not None
        }
        states = dict(
            zip(
                _state_paths(read),
                await self._coordinator.get_many(list(_state_paths(read))),
                strict=True,
            )
        )
        altered: list[str] = []
        if not is_controller:
            after = dict(zip(names, await self._coordinator.get_many(paths), strict=True))
            altered = [name for name in names if _is_altered(before[name], after[name])]
            for name in altered:
                read.pop(name, None)
        for name, assignment in read.items():
            partitions = tuple(
                _partition(
                    TopicPartition(name, number),
                    assignment,
                    states[nodes.state_path(name, number)],
                    brokers,
                    found,
                )
                for number in range(len(assignment.replicas))
            )
            found.topics[name] = TopicImage(name, assignment.topic_id, partitions)
        return altered

    async def _broker_configs(self) -> dict[BrokerId | None, Settings]:
        found = await self._configs(nodes.BROKER_CONFIGS, None)
        return {
            None if name == nodes.DEFAULT_ENTITY else _broker_id(name): configs
            for name, configs in found.items()
        }

    async def _group_configs(self) -> dict[str, Settings]:
        found = await self._configs(nodes.GROUP_CONFIGS, None)
        return {nodes.group_of(name): configs for name, configs in found.items()}

    async def _configs(self, folder: str, wanted: Collection[str] | None) -> dict[str, Settings]:
        """Settings by the name of their entity; those of nobody in `wanted` are left out."""
        names = await self._coordinator.children(folder)
        paths = [f"{folder}/{name}" for name in names]
        self._config_nodes.update(paths)
        values = await self._coordinator.get_many(paths)
        decoded = {
            name: nodes.decode_config(path, node.value)
            for name, path, node in zip(names, paths, values, strict=True)
            if node is not None and (wanted is None or name in wanted)
        }
        return {name: configs for name, configs in decoded.items() if configs}

    # -- writing ---------------------------------------------------------------------------------

    def prepare_write(
        self, fence: Fence, before: ClusterImage, changes: Sequence[Change], after: ClusterImage
    ) -> PreparedWrite:
        """What it takes to store `changes`, which lead from `before` to `after`. Changes nothing.

        Replicas of a partition are in its topic's node and its leader is in a node of its own, so
        what changes both is in one transaction.
        """
        moved: dict[str, list[PartitionChanged]] = {}
        groups: list[list[Operation]] = []
        for change in changes:
            if isinstance(change, PartitionChanged) and _is_reassigned(before, change):
                moved.setdefault(change.topic, []).append(change)
            else:
                groups.append(list(self._operations(change, fence, after)))
        for name, moves in moved.items():
            groups += _moves(before.topics[name], moves, fence)
        altered = [path for change in changes if (path := _altered_config(change)) is not None]
        notices, config_changes = _notices(self._config_changes, altered)
        created = [
            nodes.topic_config_path(change.topic.name)
            for change in changes
            if isinstance(change, TopicCreated)
        ]
        transactions = [[*fence.checks, *part] for part in _parts([*groups, notices])]
        return PreparedWrite(transactions, [*altered, *created], config_changes)

    async def write(self, prepared: PreparedWrite) -> None:
        """Store it, in one transaction if the store takes it whole.

        Raises BadVersion of `/controller_epoch` if there is a newer controller, and of
        `/brokers/generation` if a broker has registered since the brokers were read.
        """
        for operations in prepared.transactions:
            await self._coordinator.transact(operations)
        self._config_changes = prepared.config_changes
        self._config_nodes.update(prepared.config_nodes)

    def _operations(self, change: Change, fence: Fence, after: ClusterImage) -> Iterator[Operation]:
        match change:
            case TopicCreated(topic, configs):
                yield self._put_config(nodes.topic_config_path(topic.name), configs)
                yield Create(nodes.topic_path(topic.name), nodes.encode_topic(topic))
                yield Create(nodes.partitions_path(topic.name), b"")
                yield from _states(topic.name, 0, topic.partitions, fence)
            case PartitionsAdded(name, first, partitions):
                yield Set(nodes.topic_path(name), nodes.encode_topic(after.topics[name]))
                yield from _states(name, first, partitions, fence)
            case PartitionChanged():
                yield _set_state(change, fence)
            case TopicConfigChanged(name, configs):
                yield self._put_config(nodes.topic_config_path(name), configs)
            case BrokerConfigChanged(broker_id, configs):
                yield self._put_config(nodes.broker_config_path(broker_id), configs)
            case ClientConfigChanged(client, configs):
                yield self._put_config(nodes.client_config_path(client), configs)
            case GroupConfigChanged(group_id, configs):
                yield self._put_config(nodes.group_config_path(group_id), configs)
            case _:
                raise AssertionError(f"{change} is not the controller's to write")

    def _put_config(self, path: str, configs: Settings) -> Operation:
        value = nodes.encode_config(configs)
        return Set(path, value) if path in self._config_nodes else Create(path, value)

    async def write_first_states(
        self, fence: Fence, image: ClusterImage, stateless: Iterable[TopicPartition]
    ) -> None:
        """Finish topics whose creation was interrupted after their own node was written."""
        operations: list[Operation] = []
        parents: dict[str, None] = {}
        for name, partition in stateless:
            parents[nodes.partitions_path(name)] = None
            parents[nodes.partition_path(name, partition)] = None
        found = await self._coordinator.get_many(list(parents))
        operations += [
            Create(path, b"") for path, node in zip(parents, found, strict=True) if node is None
        ]
        operations += [
            Create(
                nodes.state_path(name, partition),
                nodes.encode_state(image.topics[name].partitions[partition], fence.epoch),
            )
            for name, partition in stateless
        ]
        for part in _parts([[operation] for operation in operations]):
            await self._coordinator.transact([*fence.checks, *part])

    async def mark_deletions(self, fence: Fence, topics: Iterable[str]) -> None:
        """From here on these topics do not exist, whoever dies."""
        marks = [Create(nodes.deletion_path(topic), b"") for topic in topics]
        await self._coordinator.transact([*fence.checks, *marks])

    async def finish_deletions(self, fence: Fence, topics: Iterable[str]) -> None:
        """Remove every node of topics that are marked; what is gone already is fine."""
        paths: list[str] = []
        for topic in topics:
            numbers = await self._coordinator.children(nodes.partitions_path(topic))
            below = nodes.partitions_path(topic)
            paths += [f"{below}/{number}/state" for number in numbers]
            paths += [f"{below}/{number}" for number in numbers]
            paths += [below, nodes.topic_path(topic), nodes.topic_config_path(topic)]
            paths.append(nodes.deletion_path(topic))
        found = await self._coordinator.get_many(paths)
        present = [path for path, node in zip(paths, found, strict=True) if node is not None]
        for part in _parts([[Delete(path)] for path in present]):
            await self._coordinator.transact([*fence.checks, *part])
        self._config_nodes.difference_update(present)

    async def tell_log_dir_event(self, broker_id: BrokerId, number: int) -> None:
        """Let the controller know that a log directory of this broker failed or works again."""
        with suppress(NodeExists):  # Said before, and not taken yet: it will ask after this.
            await self._coordinator.create(
                nodes.log_dir_event_path(broker_id, number), nodes.encode_log_dir_event(broker_id)
            )

    async def take_log_dir_events(self, fence: Fence) -> set[BrokerId]:
        """The brokers that have told of their log directories since this was last called."""
        names = await self._coordinator.children(nodes.LOG_DIR_EVENTS)
        paths = [f"{nodes.LOG_DIR_EVENTS}/{name}" for name in names]
        found = await self._coordinator.get_many(paths)
        events = {path: node for path, node in zip(paths, found, strict=True) if node is not None}
        if events:
            await self._coordinator.transact([*fence.checks, *map(Delete, events)])
        return {nodes.decode_log_dir_event(path, node.value) for path, node in events.items()}

    async def take_producer_ids(self, broker_id: BrokerId) -> ProducerIdBlock:
        """The next block of producer ids, which nobody else gets."""
        while True:  # Ends when this broker is the first of those that ask at the same time.
            node = await self._get(nodes.PRODUCER_ID_BLOCK)
            before = nodes.decode_producer_id_block(node.value)
            first_id = 0 if before is None else before.end_id
            block = ProducerIdBlock(broker_id, first_id, first_id + PRODUCER_ID_BLOCK_SIZE)
            try:
                await self._coordinator.set(
                    nodes.PRODUCER_ID_BLOCK,
                    nodes.encode_producer_id_block(block),
                    expected_version=node.version,
                )
            except BadVersion:
                continue
            return block

    async def skip_producer_ids(self, broker_id: BrokerId, end_id: int) -> None:
        """Hand out no id below `end_id` from now on: somebody else has."""
        node = await self._get(nodes.PRODUCER_ID_BLOCK)
        before = nodes.decode_producer_id_block(node.value)
        first_id = 0 if before is None else before.end_id
        if end_id <= first_id:
            return
        await self._coordinator.set(
            nodes.PRODUCER_ID_BLOCK,
            nodes.encode_producer_id_block(ProducerIdBlock(broker_id, first_id, end_id)),
            expected_version=node.version,
        )

    async def _get(self, path: str) -> Node:
        return _required(path, await self._coordinator.get(path))


def _required(path: str, node: Node | None) -> Node:
    if node is None:
        raise StorageError(f"{path} is missing from the coordinator's tree")
    return node


def _broker_id(name: str) -> BrokerId:
    if not name.isdecimal() or len(name) > 10:
        raise StorageError(f"the coordinator's tree holds '{name}' where a broker id should be")
    return BrokerId(int(name))


def _is_altered(before: Node | None, after: Node | None) -> bool:
    if before is None or after is None:
        return before is not after
    return before.modification_id != after.modification_id


def _state_paths(assignments: dict[str, TopicAssignment]) -> Iterator[str]:
    for name, assignment in assignments.items():
        for number in range(len(assignment.replicas)):
            yield nodes.state_path(name, number)


def _partition(
    topic_partition: TopicPartition,
    assignment: TopicAssignment,
    node: Node | None,
    brokers: dict[BrokerId, BrokerImage],
    found: _Topics,
) -> PartitionImage:
    """The state of one partition; what is wrong with it is noted in `found`."""
    topic, partition = topic_partition
    if node is None:
        found.stateless.append(topic_partition)
        return first_state(assignment.replicas[partition], brokers.keys())
    found.written_at[topic_partition] = node.modification_id
    return nodes.decode_state(topic, partition, assignment, node.value, version=node.version)


def _is_reassigned(before: ClusterImage, change: PartitionChanged) -> bool:
    old, new = before.topics[change.topic].partitions[change.partition], change.state
    return (old.replicas, old.adding_replicas, old.removing_replicas) != (
        new.replicas,
        new.adding_replicas,
        new.removing_replicas,
    )


def _moves(
    topic: TopicImage, moves: Sequence[PartitionChanged], fence: Fence
) -> Iterator[list[Operation]]:
    """States with new replicas, and the topic's node beside each part of them.

    The node has the new replicas of as many partitions as have been written with it: who reads
    the tree after any part finds states that fit.
    """
    partitions = list(topic.partitions)
    for start in range(0, len(moves), MOVES_PER_TRANSACTION_MAX):
        together = moves[start : start + MOVES_PER_TRANSACTION_MAX]
        for move in together:
            partitions[move.partition] = move.state
        written = TopicImage(topic.name, topic.topic_id, tuple(partitions))
        node = Set(nodes.topic_path(topic.name), nodes.encode_topic(written))
        yield [node, *(_set_state(move, fence) for move in together)]


def _set_state(change: PartitionChanged, fence: Fence) -> Operation:
    return Set(
        nodes.state_path(change.topic, change.partition),
        nodes.encode_state(change.state, fence.epoch),
        expected_version=change.state.partition_epoch - 1,
    )


def _parts(groups: Sequence[Sequence[Operation]]) -> Iterator[list[Operation]]:
    """Put operations together in as few transactions as a store takes, in order.

    What belongs to one change stays together if it fits.
    """
    part: list[Operation] = []
    part_bytes = 0
    for group in groups:
        group_bytes = sum(map(_size_bytes, group))
        if part and part_bytes + group_bytes > TRANSACTION_BYTES_MAX:
            yield part
            part, part_bytes = [], 0
        if group_bytes <= TRANSACTION_BYTES_MAX:
            part += group
            part_bytes += group_bytes
            continue
        for operation in group:  # A topic of very many partitions.
            if part_bytes > TRANSACTION_BYTES_MAX:
                yield part
                part, part_bytes = [], 0
            part.append(operation)
            part_bytes += _size_bytes(operation)
    if part:
        yield part


def _size_bytes(operation: Operation) -> int:
    value = operation.value if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(value) + OPERATION_OVERHEAD_BYTES


def _states(
    topic: str, first: int, partitions: Iterable[PartitionImage], fence: Fence
) -> Iterator[Operation]:
    for number, state in enumerate(partitions, first):
        yield Create(nodes.partition_path(topic, number), b"")
        yield Create(nodes.state_path(topic, number), nodes.encode_state(state, fence.epoch))


def _altered_config(change: Change) -> str | None:
    match change:
        case TopicConfigChanged(topic, _):
            return nodes.topic_config_path(topic)
        case BrokerConfigChanged(broker_id, _):
            return nodes.broker_config_path(broker_id)
        case ClientConfigChanged(client, _):
            return nodes.client_config_path(client)
        case GroupConfigChanged(group_id, _):
            return nodes.group_config_path(group_id)
        case _:
            return None


def _notices(known: Sequence[int], altered: Sequence[str]) -> tuple[list[Operation], list[int]]:
    """Tell whoever watches `/config/changes`, and forget what has long been known.

    Also returns the numbers of the notices that are there afterwards.
    """
    first = (known[-1] if known else 0) + 1
    numbers = [*known, *range(first, first + len(altered))]
    told: list[Operation] = [
        Create(nodes.config_change_path(number), nodes.encode_config_change(path))
        for number, path in enumerate(altered, first)
    ]
    forgotten = [Delete(nodes.config_change_path(each)) for each in known[:-CONFIG_CHANGES_KEPT]]
    return [*told, *forgotten], [*known[-CONFIG_CHANGES_KEPT:], *numbers[len(known) :]]
