"""One broker, put together from its parts and its ports.

`node.py` gives real ports, the simulator its own; everything between them is the same.

Order of starting: reserve the listeners (so that a port in use is said before anything is touched),
begin a session with the coordinator and read the cluster, open the log directories and the
partitions that belong here, listen, and only then register: whoever is registered may be elected,
and is expected to answer. Stopping goes the other way: let the controller move leaders away, stop
accepting, let answers leave, close the logs, write the clean-shutdown marks, leave the coordinator.
A kill -9 at any point is a crash, which is the path that is tested most.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tidelog.base.errors import ErrorCode, StorageError, WireError
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Clock, Disk
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.adoption import adopt
from tidelog.broker.after_read import AfterRead
from tidelog.broker.broker_channels import BrokerChannels, ControlledBroker
from tidelog.broker.cleaning import Cleaner
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.controlled_brokers import LocalBroker, RemoteBroker
from tidelog.broker.controller_link import ControllerLink, address_of
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.departures import Departures
from tidelog.broker.disk_executor import DiskExecutor
from tidelog.broker.dispatch import ColdHandlers, Dispatcher
from tidelog.broker.fetch_reader import FetchReader
from tidelog.broker.forwarding import Forwarding
from tidelog.broker.group_handlers import direct_group_handlers, group_coordinator
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.add_partitions_to_txn import AddPartitionsToTxnApi
from tidelog.broker.handlers.api_versions import ApiVersionsHandler
from tidelog.broker.handlers.coordinated import CoordinatedHandler
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.find_coordinator import FindCoordinatorHandler
from tidelog.broker.handlers.find_records import find_records_handler
from tidelog.broker.handlers.inter_broker import inter_broker_handlers
from tidelog.broker.handlers.list_offsets import ListOffsetsHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.txn_offset_commit import TxnOffsetCommitApi
from tidelog.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.internal_topics import InternalTopics, topic_template
from tidelog.broker.isr_proposals import IsrProposals
from tidelog.broker.large_requests import LargeRequests
from tidelog.broker.leader_balance import balance_leaders
from tidelog.broker.leadership_checks import LeadershipChecks
from tidelog.broker.local_controller import LocalControllerSide
from tidelog.broker.log_dir_events import LogDirEvents
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.memory import MemoryBound
from tidelog.broker.metrics import look
from tidelog.broker.metrics_server import MetricsServer
from tidelog.broker.network import Network
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers import Address, Peer, PeerUnreachable
from tidelog.broker.produce_verification import ProduceVerification
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.replica_fetchers import ReplicaFetchers
from tidelog.broker.replicas import Replicas
from tidelog.broker.replication_throttle import ReplicationThrottles
from tidelog.broker.request_tasks import RequestTasks
from tidelog.broker.served_partition import PartitionPorts
from tidelog.broker.server import Server, ServerLimits
from tidelog.broker.shortcuts import Shortcuts
from tidelog.broker.topic_creation import TopicCreation
from tidelog.broker.transaction_handlers import (
    direct_transaction_handlers,
    transaction_coordinator,
)
from tidelog.broker.transaction_shards import TransactionCoordinator
from tidelog.broker.transaction_verifier import TransactionVerifier
from tidelog.broker.upkeep import Upkeep
from tidelog.config.broker import BrokerConfig
from tidelog.config.network import NetworkConfig
from tidelog.coordination.port import Coordinator
from tidelog.core.controller.changes import changes_between
from tidelog.core.controller.image import (
    EMPTY_IMAGE,
    NO_CONTROLLER_EPOCH,
    BrokerImage,
    Endpoint,
    LastStop,
)
from tidelog.core.sessions import FetchSessionCache
from tidelog.storage.layout import BOOT_ID, META_PROPERTIES
from tidelog.storage.log_dir import LogDir, open_log_dir
from tidelog.storage.meta_properties import read_meta_properties
from tidelog.wire.api import ApiKey
from tidelog.wire.controlled_shutdown import ControlledShutdownRequest

logger = logging.getLogger(__name__)

HASH_KEY_BYTES = 16
SESSION_PARTITIONS_MAX = 1_000_000
WARM_UP_DELAY_S = 1.0
# An administrator's answer waits so long for all brokers to know of it, and for them to have done
# it: who creates a topic may write to it at once, unless it is one of very many partitions.
KNOWN_WAIT_MAX_S = 2.0
DONE_WAIT_MAX_S = 0.2
ADMISSION_WAIT_MAX_S = 10.0
CONTROL_TIMEOUT_MS = 30_000
SHUTDOWN_RETRY_BACKOFF_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """Everything a broker needs from outside its process."""

    disk: Disk
    clock: Clock
    network: Network
    connect: Callable[[], Awaitable[Coordinator]]
    executor: Callable[[str], DiskExecutor]
    chance: Random
    hash_key: bytes
    """HASH_KEY_BYTES that nobody outside knows: clients choose keys, but not their hashes."""

    boot_id: str
    """Of the machine: another one means that it was restarted, and unflushed writes are gone."""

    connection_descriptor_max: int
    """Files that this process may open for connections; the rest is for logs."""

    shortcuts: Shortcuts
    """What is compiled, or nothing."""


class Broker:
    """One broker and everything it is made of."""

    def __init__(self, config: BrokerConfig, ports: BrokerPorts) -> None:
        self.config = config
        self.partitions = Partitions()
        self._ports = ports
        self._turns: HeavyTurns  # Of the loop that `run` finds.
        self._request_memory = MemoryBound(_request_memory_bytes(config.network))
        self._answer_memory = MemoryBound(config.network.tidelog_response_memory_bytes)
        self.controller = ControllerRunner(
            connect=ports.connect, config=config, clock=ports.clock, chance=ports.chance
        )
        self.requests = AdminRequests(self.controller)
        local = LocalControllerSide(self.controller, self.requests)
        self._local = local
        self.link = ControllerLink(
            broker_id=config.broker_id,
            local=local,
            connect=partial(self._peer, timeout_ms=CONTROL_TIMEOUT_MS),
            inter_broker_listener=config.network.inter_broker_listener,
        )
        self.log_dir_events = LogDirEvents(self.controller.tell_log_dirs_changed)
        self.throttles = ReplicationThrottles(config.broker_id, ports.clock, config.topic_defaults)
        self.proposals = IsrProposals(
            self.link,
            broker_id=config.broker_id,
            broker_epoch=lambda: self.controller.broker_epoch,
        )
        self.leadership = LeadershipChecks(lambda: self.controller.joined().tree)

    async def run(
        self,
        tasks: asyncio.TaskGroup,
        *,
        stopping: asyncio.Event,
        on_ready: Callable[[Sequence[Endpoint]], None],
    ) -> None:
        """Start, say so, serve until `stopping`, stop. Raises TidelogError if it cannot start."""
        loop = asyncio.get_running_loop()
        controller = self.controller
        after_read = AfterRead(loop)
        pause_s = self.config.network.tidelog_heavy_pause_ms / 1000
        turns = self._turns = HeavyTurns(loop, pause_s=pause_s)
        server = self._server(loop, after_read, turns)
        endpoints = await self._bind(server)
        image = await controller.join(self._cluster_of_folders())
        log_dirs = await self._open_log_dirs(loop, image.cluster_id)
        departures = self._departures(tasks)
        replicas = self._replicas(log_dirs, tasks, departures)
        replicas.on_config_changed(lambda config: self.throttles.on_config(config.replication))
        self.throttles.on_image(image, changes_between(EMPTY_IMAGE, image))
        cleaner = Cleaner(
            config=self.config.log,
            partitions=self.partitions,
            clock=self._ports.clock,
            hash_key=self._ports.hash_key,
        )
        replicas.on_config_changed(lambda config: cleaner.on_config(config.log))
        replicas.on_config_changed(lambda config: server.set_limits(self._limits(config.network)))
        groups = self._groups(loop, tasks, replicas)
        groups.on_image(image, changes_between(EMPTY_IMAGE, image))
        markers = self._markers(loop)
        transactions = self._transactions(loop, tasks, markers)
        verifier = self._verifier(loop, tasks, transactions)
        await replicas.start(image)
        control = ControlRequests(controller, replicas)
        controller.use_channels(self._channels(control, tasks))
        dispatcher = self._dispatcher(
            loop,
            after_read,
            turns,
            tasks,
            replicas,
            log_dirs,
            control,
            departures,
            groups,
            transactions,
            verifier,
            markers,
        )
        server.dispatch = dispatcher.dispatch
        server.gate.is_reliable = controller.is_reliable
        await server.listen()
        metrics = await self._serve_metrics(tasks)
        stop = await self._last_stop(log_dirs)
        await controller.register(endpoints, stop)
        following = tasks.create_task(controller.run())
        if controller.is_controller and not controller.image.topics:
            await self._adopt(log_dirs)
        newest = controller.image
        for subscriber in (
            self.throttles.on_image,
            replicas.on_image,
            self.link.on_image,
            groups.on_image,
            transactions.on_image,
            verifier.on_image,
        ):
            controller.subscribe(subscriber)
            subscriber(newest, changes_between(image, newest))
        jobs = [
            *self._upkeep(log_dirs, replicas).start(tasks),
            tasks.create_task(cleaner.run()),
            tasks.create_task(self.proposals.run()),
            tasks.create_task(self.leadership.run()),
            tasks.create_task(self.log_dir_events.run()),
            tasks.create_task(balance_leaders(self.requests, self.config.replication)),
            tasks.create_task(_warm_up(dispatcher)),
        ]
        vouching = tasks.create_task(self._vouch(log_dirs))
        jobs.append(vouching)
        admitted, _ = await asyncio.wait({vouching}, timeout=ADMISSION_WAIT_MAX_S)
        if not admitted:
            logger.warning("no controller has answered yet")
        await replicas.settled()
        departures.joined()
        on_ready(endpoints)
        await stopping.wait()  # Ended by a signal.
        metrics.close()
        await self._stop(
            server, groups, transactions, verifier, replicas, log_dirs, jobs, following
        )

    async def _stop(
        self,
        server: Server,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        verifier: TransactionVerifier,
        replicas: Replicas,
        log_dirs: Sequence[LogDirRunner],
        jobs: list["asyncio.Task[None]"],
        following: "asyncio.Task[None]",
    ) -> None:
        logger.info("stopping", extra={"partitions": len(self.partitions)})
        if self.config.replication.controlled_shutdown_enable:
            await self._shut_down_controlled()
        groups.shards.end()  # Members wait for each other; nobody waits for them any more.
        transactions.end()
        verifier.close()
        await server.drain(self.config.network.tidelog_shutdown_timeout_ms / 1000)
        fetching = replicas.stop_fetching()
        jobs = [*jobs, *fetching, *replicas.moves.stop(), following]
        for job in jobs:
            job.cancel()
        await asyncio.wait(jobs)
        await replicas.settled()
        for log_dir in log_dirs:
            await log_dir.close()
        self.link.close()
        await self.controller.stop()
        logger.info("stopped")

    # -- starting and stopping -------------------------------------------------------------------

    async def _bind(self, server: Server) -> tuple[Endpoint, ...]:
        """Reserve every listener; return what clients are to be told."""
        network = self.config.network
        endpoints = []
        for bound, advertised in zip(network.bound_listeners, network.advertised, strict=True):
            port = await server.bind(bound, backlog=network.socket_listen_backlog_size)
            endpoints.append(
                Endpoint(
                    bound.name,
                    "PLAINTEXT",
                    advertised.host or socket.getfqdn(),
                    advertised.port or port,
                )
            )
        return tuple(endpoints)

    async def _serve_metrics(self, tasks: asyncio.TaskGroup) -> MetricsServer:
        """Answers from now on, if there is a port for it."""
        network = self.config.network
        metrics = MetricsServer(
            self._ports.network,
            lambda: look(self.partitions, is_controller=self.controller.is_controller),
            tasks,
        )
        if network.tidelog_metrics_port >= 0:
            await metrics.listen(network.tidelog_metrics_host, network.tidelog_metrics_port)
        return metrics

    async def _last_stop(self, log_dirs: Sequence[LogDirRunner]) -> LastStop:
        """How this broker ended before, and so what its disks can have lost (R13)."""
        stops = [await log_dir.last_stop(self._ports.boot_id) for log_dir in log_dirs]
        stop = max(stops, key=[LastStop.CLEAN, LastStop.KILLED, LastStop.LOST].index)
        if stop is not LastStop.CLEAN:
            logger.info("last stop was not clean", extra={"stop": stop.value})
        return stop

    def _cluster_of_folders(self) -> str | None:
        """The cluster that the folders here belong to, if a broker of ours has served from them.

        Its coordinator knows them. With another the first to come would make topics of the copies
        that it has, and the others' would be nobody's.
        """
        disk = self._ports.disk
        for path in self.config.log_dirs:
            if disk.exists(path / BOOT_ID):
                found = read_meta_properties(disk, path / META_PROPERTIES)
                if found is not None:
                    return found.cluster_id
        return None

    async def _adopt(self, log_dirs: Sequence[LogDirRunner]) -> None:
        """A new cluster on old folders takes them over.

        Where ours has had a controller before, what it left is of topics that were deleted.
        """
        is_new = self.controller.claim.controller_epoch == NO_CONTROLLER_EPOCH + 1
        await adopt(
            self.requests,
            [one for one in log_dirs if is_new or not await one.was_vouched_for()],
            broker_id=self.config.broker_id,
            topic_defaults=self.config.topic_defaults,
            producer_id_expiration_ms=self.config.transactions.producer_id_expiration_ms,
            now_ms=self._ports.clock.now_ms(),
        )

    async def _vouch(self, log_dirs: Sequence[LogDirRunner]) -> None:
        """Note that nothing is lost, once the controller has heard of what was (R13)."""
        controller = self.controller
        admitted = asyncio.Event()

        def look(*_news: object) -> None:
            if controller.is_admitted:
                admitted.set()

        controller.subscribe(look)
        look()
        await admitted.wait()  # Ended by the controller.
        for log_dir in log_dirs:
            await log_dir.write_boot_id(self._ports.boot_id)

    async def _shut_down_controlled(self) -> None:
        """Have the controller move every leadership away that somebody else can take (C5).

        Asked again while something remains, if there are others: they may catch up meanwhile.
        """
        replication = self.config.replication
        for _ in range(replication.controlled_shutdown_max_retries):
            request = ControlledShutdownRequest(self.config.broker_id, self.controller.broker_epoch)
            try:
                response = await self.link.controlled_shutdown(request)
            except (PeerUnreachable, WireError) as error:
                logger.info("controller does not answer", extra={"reason": error})
            else:
                if response.error_code == ErrorCode.NONE:
                    if not response.remaining or len(self.controller.image.brokers) == 1:
                        return
                    logger.info(
                        "leaderships nobody else can take yet",
                        extra={"partitions": len(response.remaining)},
                    )
            await asyncio.sleep(SHUTDOWN_RETRY_BACKOFF_S)

    async def _delivered(self) -> None:
        await self.controller.known(KNOWN_WAIT_MAX_S)
        await self.controller.delivered(DONE_WAIT_MAX_S)

    def _departures(self, tasks: asyncio.TaskGroup) -> Departures:
        def look() -> None:
            tasks.create_task(self.controller.look_around())

        departures = Departures(asyncio.get_running_loop(), look)
        departures.on_image(self.controller.image, ())
        self.controller.subscribe(departures.on_image)
        return departures

    # -- parts -----------------------------------------------------------------------------------

    def _peer(self, address: Address, *, timeout_ms: int) -> Peer:
        network, replication = self.config.network, self.config.replication
        return Peer(
            address,
            network=self._ports.network,
            loop=asyncio.get_running_loop(),
            timeout_ms=timeout_ms,
            answer_max_bytes=network.socket_request_max_bytes
            + replication.replica_fetch_response_max_bytes,
            turns=self._turns,
        )

    def _peer_of(self, broker_id: BrokerId) -> Peer | None:
        """A connection to fetch over; None while nobody knows where that broker is."""
        broker = self.controller.image.brokers.get(broker_id)
        if broker is None:
            return None
        return self._peer(
            address_of(broker, self.config.network.inter_broker_listener),
            timeout_ms=self.config.replication.replica_socket_timeout_ms,
        )

    def _channels(self, control: ControlRequests, tasks: asyncio.TaskGroup) -> BrokerChannels:
        me = self.config.broker_id

        def connect(broker: BrokerImage) -> ControlledBroker:
            if broker.broker_id == me:
                return LocalBroker(control)
            address = address_of(broker, self.config.network.inter_broker_listener)
            peer = self._peer(address, timeout_ms=CONTROL_TIMEOUT_MS)
            return RemoteBroker(peer, f"controller-{me}")

        return BrokerChannels(
            connect=connect,
            on_told=self.controller.on_told,
            on_succeeded=self.controller.on_succeeded,
            tasks=tasks,
        )

    def _server(
        self, loop: asyncio.AbstractEventLoop, after_read: AfterRead, turns: HeavyTurns
    ) -> Server:
        return Server(
            limits=self._limits(self.config.network),
            network=self._ports.network,
            clock=self._ports.clock,
            loop=loop,
            frame_memory=MemoryBound(_request_memory_bytes(self.config.network)),
            request_memory=self._request_memory,
            answer_memory=self._answer_memory,
            after_read=after_read,
            turns=turns,
            protocol=self._ports.shortcuts.protocol,
            dispatch=_not_serving,
        )

    async def _open_log_dirs(
        self, loop: asyncio.AbstractEventLoop, cluster_id: str
    ) -> list[LogDirRunner]:
        log_dirs = []
        for number, path in enumerate(self.config.log_dirs):
            log_dir = LogDirRunner(
                path=path,
                disk=self._ports.disk,
                executor=self._ports.executor(f"log-dir-{number}"),
                loop=loop,
                open_log_dir=partial(self._open_log_dir, path, cluster_id),
                on_changed=self.log_dir_events.note,
            )
            log_dirs.append(log_dir)
            try:
                await log_dir.open()
            except StorageError as error:
                log_dir.on_failure(error)
        if not any(log_dir.is_online for log_dir in log_dirs):
            raise StorageError(f"no log directory can be used: {log_dirs[0].offline_reason}")
        return log_dirs

    def _open_log_dir(self, path: Path, cluster_id: str) -> LogDir:
        """On the directory's thread."""
        return open_log_dir(
            self._ports.disk,
            path,
            broker_id=self.config.broker_id,
            cluster_id=cluster_id,
            open_files_max=self.config.log.tidelog_open_files_max,
            warn=lambda sentence: logger.warning("repaired", extra={"reason": sentence}),
        )

    def _replicas(
        self, log_dirs: Sequence[LogDirRunner], tasks: asyncio.TaskGroup, departures: Departures
    ) -> Replicas:
        fetchers = ReplicaFetchers(
            connect=self._peer_of,
            broker_id=self.config.broker_id,
            broker_epoch=lambda: self.controller.broker_epoch,
            config=self.config.replication,
            throttle=self.throttles.follower,
            loop=asyncio.get_running_loop(),
            tasks=tasks,
            on_lost=departures.suspect,
            on_found=departures.trust,
            shortcut=self._ports.shortcuts.follow,
        )
        return Replicas(
            broker_id=self.config.broker_id,
            config=self.config,
            partitions=self.partitions,
            log_dirs=log_dirs,
            ports=PartitionPorts(
                request_memory=self._request_memory,
                clock=self._ports.clock,
                hash_key=self._ports.hash_key,
                propose_isr=self.proposals.propose,
                refuse_if_leading=self.leadership.refuse_if_leading,
            ),
            tasks=tasks,
            fetchers=fetchers,
        )

    def _groups(
        self, loop: asyncio.AbstractEventLoop, tasks: asyncio.TaskGroup, replicas: Replicas
    ) -> GroupCoordinator:
        groups = group_coordinator(
            self.config.groups,
            self.config.consumer_groups,
            broker_id=self.config.broker_id,
            partitions=self.partitions,
            clock=self._ports.clock,
            chance=self._ports.chance,
            hash_key=self._ports.hash_key,
            loop=loop,
            tasks=tasks,
        )
        replicas.on_config_changed(lambda config: groups.on_config(config.consumer_groups))
        return groups

    def _markers(self, loop: asyncio.AbstractEventLoop) -> WriteTxnMarkersHandler:
        return WriteTxnMarkersHandler(
            self.partitions,
            self._ports.clock,
            loop,
            timeout_ms=self.config.network.request_timeout_ms,
        )

    def _transactions(
        self,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        markers: WriteTxnMarkersHandler,
    ) -> TransactionCoordinator:
        return transaction_coordinator(
            self.config.transactions,
            broker_id=self.config.broker_id,
            partitions=self.partitions,
            producer_ids=ProducerIds(self.requests.allocate_producer_ids, tasks),
            connect=self._peer_of,
            write_here=markers.write,
            request_timeout_ms=self.config.network.request_timeout_ms,
            clock=self._ports.clock,
            hash_key=self._ports.hash_key,
            loop=loop,
            tasks=tasks,
        )

    def _verifier(
        self,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        coordinator: TransactionCoordinator,
    ) -> TransactionVerifier:
        transactions = self.config.transactions
        return TransactionVerifier(
            broker_id=self.config.broker_id,
            partitions=self.partitions,
            connect=self._peer_of,
            ask_here=AddPartitionsToTxnApi(coordinator, self.partitions).ask_here,
            retry_backoff_ms=transactions.add_partitions_to_txn_retry_backoff_ms,
            retry_max_ms=transactions.add_partitions_to_txn_retry_backoff_max_ms,
            loop=loop,
            tasks=tasks,
        )

    def _upkeep(self, log_dirs: Sequence[LogDirRunner], replicas: Replicas) -> Upkeep:
        return Upkeep(
            config=self.config,
            partitions=self.partitions,
            log_dirs=log_dirs,
            reopen=replicas.reopen,
            clock=self._ports.clock,
        )

    def _dispatcher(
        self,
        loop: asyncio.AbstractEventLoop,
        after_read: AfterRead,
        turns: HeavyTurns,
        tasks: asyncio.TaskGroup,
        replicas: Replicas,
        log_dirs: Sequence[LogDirRunner],
        control: ControlRequests,
        departures: Departures,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        verifier: TransactionVerifier,
        markers: WriteTxnMarkersHandler,
    ) -> Dispatcher:
        replication = self.config.replication
        partitions, requests = self.partitions, self.requests
        request_tasks = RequestTasks(tasks)
        large = LargeRequests(self._request_memory)
        forwarding = Forwarding(self.link, self._local)
        delivered = self._delivered
        fetch = FetchHandler(
            reader=FetchReader(
                partitions=partitions,
                answer_memory=self._answer_memory,
                fetch_max_bytes=min(
                    replication.fetch_max_bytes, replication.tidelog_fetch_answer_bytes
                ),
                throttle=self.throttles.leader,
                is_rack_aware=replication.is_rack_aware,
            ),
            sessions=FetchSessionCache(
                slots_max=replication.max_incremental_fetch_session_cache_slots,
                partitions_max=SESSION_PARTITIONS_MAX,
                chance=self._ports.chance,
            ),
            answer_memory=self._answer_memory,
            clock=self._ports.clock,
            loop=loop,
            after_read=after_read,
            turns=turns,
            shortcut=self._ports.shortcuts.fetch,
        )
        topic_creation = TopicCreation(
            requests, forwarding, delivered, partial(topic_template, self.config)
        )
        internal_topics = InternalTopics(topic_creation, self.config)
        metadata = MetadataHandler(
            broker_id=self.config.broker_id,
            partitions=partitions,
            topic_creation=topic_creation,
            auto_create_topics=replication.auto_create_topics_enable,
            tasks=request_tasks,
            large=large,
            departures=departures,
        )

        def load_cold() -> ColdHandlers:
            # Here, because it takes longer than everything else that a start needs.
            from tidelog.broker.admin_handlers import admin_handlers  # noqa: PLC0415

            return admin_handlers(
                requests=requests,
                replicas=replicas,
                partitions=partitions,
                log_dirs=log_dirs,
                delivered=delivered,
                groups=groups,
                transactions=transactions,
                forwarding=forwarding,
            )

        def is_verifying() -> bool:
            return replicas.config.transactions.transaction_partition_verification_enable

        dispatcher: Dispatcher | None = None

        async def answer_forwarded(frame: bytes, client_host: str) -> bytes:
            assert dispatcher is not None
            return await dispatcher.answer_forwarded(frame, client_host)

        dispatcher = Dispatcher(
            produce=ProduceHandler(
                partitions,
                self._ports.clock,
                loop,
                after_read,
                turns,
                self._ports.shortcuts.produce,
                ProduceVerification(
                    partitions=partitions,
                    verifier=verifier,
                    memory=MemoryBound(_request_memory_bytes(self.config.network)),
                    clock=self._ports.clock,
                    is_enabled=is_verifying,
                ),
                request_tasks,
            ),
            direct={
                ApiKey.FETCH: fetch,
                ApiKey.LIST_OFFSETS: ListOffsetsHandler(partitions, request_tasks, large),
                ApiKey.METADATA: metadata,
                ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(
                    partitions, internal_topics, request_tasks, large
                ),
                ApiKey.API_VERSIONS: ApiVersionsHandler(),
                ApiKey.WRITE_TXN_MARKERS: markers,
                ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(
                    partitions, request_tasks, large
                ),
                ApiKey.TXN_OFFSET_COMMIT: CoordinatedHandler(
                    TxnOffsetCommitApi(
                        groups, partitions, verifier, is_verifying, self._ports.clock, loop, tasks
                    ),
                    request_tasks,
                    large,
                ),
                **direct_group_handlers(groups, partitions, request_tasks, large),
                **direct_transaction_handlers(transactions, partitions, request_tasks, large),
            },
            inter_broker={
                **inter_broker_handlers(
                    tasks=request_tasks,
                    control=control,
                    controller=self._local,
                    forwarded=answer_forwarded,
                ),
                ApiKey.FIND_RECORDS: find_records_handler(partitions, request_tasks),
            },
            forwarding=forwarding,
            load_cold=load_cold,
            tasks=request_tasks,
            large=large,
        )
        return dispatcher

    def _limits(self, network: NetworkConfig) -> ServerLimits:
        return ServerLimits(
            request_max_bytes=network.socket_request_max_bytes,
            read_budget_bytes=network.tidelog_read_budget_bytes,
            connections_max=network.max_connections,
            connections_max_per_ip=network.max_connections_per_ip,
            connections_max_per_ip_overrides=network.connection_overrides,
            connections_per_second_max=network.max_connection_creation_rate,
            unpaced_listener=(
                network.inter_broker_listener if len(network.bound_listeners) > 1 else None
            ),
            descriptor_max=self._ports.connection_descriptor_max,
            idle_max_ms=network.connections_max_idle_ms,
            slow_reader_max_ms=network.tidelog_slow_reader_timeout_ms,
            send_buffer_bytes=network.socket_send_buffer_bytes,
            receive_buffer_bytes=network.socket_receive_buffer_bytes,
        )


async def _warm_up(dispatcher: Dispatcher) -> None:
    """Import what admin requests need, once the first clients have had their turn."""
    await asyncio.sleep(WARM_UP_DELAY_S)
    await asyncio.to_thread(dispatcher.warm_up)


def _request_memory_bytes(network: NetworkConfig) -> int:
    if network.queued_max_request_bytes > 0:
        return network.queued_max_request_bytes
    return network.tidelog_response_memory_bytes


def _not_serving(_connection: Connection, _frame: memoryview) -> Answer:
    raise AssertionError("no connection is accepted before the broker is ready")
