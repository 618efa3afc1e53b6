"""The composition root: the one place that builds real ports and wires a broker together.

Order of starting: bind the listeners (so that a port in use is said before anything is touched),
join the coordinator, open the log directories, open the partitions, then serve. Stopping goes the
other way: stop accepting, let answers leave, close the logs, write the clean-shutdown marks, leave
the coordinator. A kill -9 at any point is a crash, which is the path that is tested most.
"""

import asyncio
import gc
import logging
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from tidelog.base.clock import SystemClock
from tidelog.base.errors import StorageError, TidelogError
from tidelog.base.ports import Disk
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.disk_executor import DiskExecutor
from tidelog.broker.dispatch import ColdHandlers, Dispatcher
from tidelog.broker.fast_produce import fast_produce
from tidelog.broker.fetch_reader import FetchReader
from tidelog.broker.handlers.api_versions import ApiVersionsHandler
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.find_coordinator import FindCoordinatorHandler
from tidelog.broker.handlers.init_producer_id import InitProducerIdHandler
from tidelog.broker.handlers.list_offsets import ListOffsetsHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.large_requests import LargeRequests
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.memory import MemoryBound
from tidelog.broker.network import SocketNetwork
from tidelog.broker.partitions import Partitions
from tidelog.broker.replicas import Replicas
from tidelog.broker.request_tasks import RequestTasks
from tidelog.broker.server import Server, ServerLimits
from tidelog.broker.topic_creation import TopicCreation
from tidelog.broker.upkeep import Upkeep
from tidelog.config.broker import BrokerConfig
from tidelog.config.network import NetworkConfig
from tidelog.coordination import sqlite
from tidelog.coordination.port import Coordinator
from tidelog.core.controller.image import Endpoint
from tidelog.core.sessions import FetchSessionCache
from tidelog.storage.disk import RealDisk
from tidelog.storage.layout import META_PROPERTIES
from tidelog.storage.log_dir import LogDir, open_log_dir
from tidelog.storage.meta_properties import read_meta_properties
from tidelog.telemetry import logs
from tidelog.wire.api import ApiKey

logger = logging.getLogger(__name__)

SESSION_PARTITIONS_MAX = 1_000_000
GC_THRESHOLD = 20_000
WARM_UP_DELAY_S = 1.0
# The last one comes when the terminal is closed.
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What connections leave to logs of the files that this process may open: an eighth, up to this.
LOG_DESCRIPTORS_MAX = 1024


def run(config: BrokerConfig) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP. Returns the exit code of the process."""
    logs.configure("INFO")
    for warning in config.warnings:
        logger.warning("setting has no effect", extra={"reason": warning})
    # Requests make few cycles; looking for them on every 700 allocations costs latency.
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    return uvloop.run(Node(config).serve())


class Node:
    """One broker and everything it is made of."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self._disk: Disk = RealDisk()
        self._stopping = asyncio.Event()
        self._partitions = Partitions()
        self._request_memory = MemoryBound(_request_memory_bytes(config.network))
        self._answer_memory = MemoryBound(config.network.tidelog_response_memory_bytes)

    async def serve(self) -> int:
        """Start, say so, serve until a signal, stop."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(end_process)
        for ending in ENDINGS:
            if signal.getsignal(ending) is not signal.SIG_IGN:  # As nohup leaves it.
                loop.add_signal_handler(ending, self._stopping.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._run(loop, tasks)
        except* TidelogError as group:
            raise _first(group) from None
        # The loop lets go of its handlers next, and whoever is told twice to stop has stopped.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        return 0

    async def _run(self, loop: asyncio.AbstractEventLoop, tasks: asyncio.TaskGroup) -> None:
        server = self._server(loop)
        endpoints = await self._bind(server)
        controller = ControllerRunner(
            connect=self._connect,
            config=self._with_found_cluster_id(),
            endpoints=endpoints,
            clock=self._clock,
            chance=random.SystemRandom(),
        )
        await controller.start()
        following = tasks.create_task(controller.run())
        log_dirs = await self._open_log_dirs(loop, controller.image.cluster_id)
        replicas = self._replicas(log_dirs, tasks)
        await replicas.start(controller)
        dispatcher = self._dispatcher(loop, tasks, controller, replicas, log_dirs)
        server.dispatch = dispatcher.dispatch
        replicas.on_config_changed(lambda config: server.set_limits(_limits(config.network)))
        upkeep = Upkeep(
            config=self._config,
            partitions=self._partitions,
            log_dirs=log_dirs,
            reopen=replicas.reopen,
            clock=self._clock,
        )
        jobs = [
            *upkeep.start(tasks),
            following,
            tasks.create_task(_warm_up(dispatcher)),
        ]
        await server.listen()
        self._announce(endpoints)
        await self._stopping.wait()  # Ended by a signal.
        logger.info("stopping", extra={"partitions": len(self._partitions)})
        await server.drain(self._config.network.tidelog_shutdown_timeout_ms / 1000)
        for job in jobs:
            job.cancel()
        await asyncio.wait(jobs)
        await replicas.settled()
        for log_dir in log_dirs:
            await log_dir.close()
        await controller.stop()
        logger.info("stopped")

    # -- parts -----------------------------------------------------------------------------------

    def _server(self, loop: asyncio.AbstractEventLoop) -> Server:
        return Server(
            limits=_limits(self._config.network),
            network=SocketNetwork(loop),
            clock=self._clock,
            loop=loop,
            frame_memory=MemoryBound(_request_memory_bytes(self._config.network)),
            request_memory=self._request_memory,
            answer_memory=self._answer_memory,
            dispatch=_not_serving,
        )

    async def _bind(self, server: Server) -> tuple[Endpoint, ...]:
        """Reserve every listener; return what clients are to be told."""
        network = self._config.network
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

    def _with_found_cluster_id(self) -> BrokerConfig:
        """A new cluster on folders that have an identity already goes by that (adoption)."""
        coordination = self._config.coordination
        if coordination.tidelog_cluster_id is not None:
            return self._config
        for path in self._config.log_dirs:
            try:
                found = read_meta_properties(self._disk, path / META_PROPERTIES)
            except StorageError:
                continue  # Opening the directory says what is wrong with it.
            if found is not None:
                coordination = replace(coordination, tidelog_cluster_id=found.cluster_id)
                return replace(self._config, coordination=coordination)
        return self._config

    async def _connect(self) -> Coordinator:
        coordination = self._config.coordination
        if coordination.zookeeper_hosts is not None:
            # Late: who does not use ZooKeeper does not load kazoo.
            from tidelog.coordination import zookeeper  # noqa: PLC0415

            return await zookeeper.connect(
                coordination.zookeeper_hosts,
                session_timeout_ms=coordination.zookeeper_session_timeout_ms,
                connection_timeout_ms=coordination.zookeeper_connection_timeout_ms
                or coordination.zookeeper_session_timeout_ms,
            )
        return await sqlite.connect(
            self._config.coordination_path,
            session_timeout_ms=coordination.broker_session_timeout_ms,
            heartbeat_interval_ms=coordination.broker_heartbeat_interval_ms,
        )

    async def _open_log_dirs(
        self, loop: asyncio.AbstractEventLoop, cluster_id: str
    ) -> list[LogDirRunner]:
        log_dirs = []
        for number, path in enumerate(self._config.log_dirs):
            executor = DiskExecutor(f"log-dir-{number}", loop)
            log_dir = LogDirRunner(
                path=path,
                disk=self._disk,
                executor=executor,
                loop=loop,
                open_log_dir=partial(self._open_log_dir, path, cluster_id),
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
            self._disk,
            path,
            broker_id=self._config.broker_id,
            cluster_id=cluster_id,
            open_files_max=self._config.log.tidelog_open_files_max,
            warn=lambda sentence: logger.warning("repaired", extra={"reason": sentence}),
        )

    def _replicas(self, log_dirs: Sequence[LogDirRunner], tasks: asyncio.TaskGroup) -> Replicas:
        return Replicas(
            broker_id=self._config.broker_id,
            config=self._config,
            partitions=self._partitions,
            log_dirs=log_dirs,
            request_memory=self._request_memory,
            clock=self._clock,
            tasks=tasks,
        )

    def _dispatcher(
        self,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        controller: ControllerRunner,
        replicas: Replicas,
        log_dirs: Sequence[LogDirRunner],
    ) -> Dispatcher:
        replication = self._config.replication
        partitions = self._partitions
        requests = RequestTasks(tasks)
        large = LargeRequests(self._request_memory)
        fetch = FetchHandler(
            reader=FetchReader(
                partitions=partitions,
                answer_memory=self._answer_memory,
                fetch_max_bytes=min(
                    replication.fetch_max_bytes, replication.tidelog_fetch_answer_bytes
                ),
            ),
            sessions=FetchSessionCache(
                slots_max=replication.max_incremental_fetch_session_cache_slots,
                partitions_max=SESSION_PARTITIONS_MAX,
                chance=random.SystemRandom(),
            ),
            answer_memory=self._answer_memory,
            clock=self._clock,
            loop=loop,
        )
        metadata = MetadataHandler(
            partitions=partitions,
            topic_creation=TopicCreation(controller, replicas),
            auto_create_topics=replication.auto_create_topics_enable,
            tasks=requests,
            large=large,
        )

        def load_cold() -> ColdHandlers:
            # Here, because it takes longer than everything else that a start needs.
            from tidelog.broker.admin_handlers import admin_handlers  # noqa: PLC0415

            return admin_handlers(
                controller=controller, replicas=replicas, partitions=partitions, log_dirs=log_dirs
            )

        return Dispatcher(
            produce=ProduceHandler(partitions, self._clock, loop, fast_produce),
            direct={
                ApiKey.FETCH: fetch,
                ApiKey.LIST_OFFSETS: ListOffsetsHandler(partitions, requests, large),
                ApiKey.METADATA: metadata,
                ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(partitions, requests, large),
                ApiKey.API_VERSIONS: ApiVersionsHandler(),
                ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(
                    controller=controller, tasks=requests
                ),
                ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(
                    partitions, requests, large
                ),
            },
            load_cold=load_cold,
            tasks=requests,
            large=large,
        )

    def _announce(self, endpoints: Sequence[Endpoint]) -> None:
        first = endpoints[0]
        host = f"[{first.host}]" if ":" in first.host else first.host
        with suppress(OSError):  # Nobody reads it, or it goes to a disk that is full.
            sys.stdout.write(
                f"tidelog broker {self._config.broker_id} listening on {host}:{first.port}\n"
            )
            sys.stdout.flush()


async def _warm_up(dispatcher: Dispatcher) -> None:
    """Import what admin requests need, once the first clients have had their turn."""
    await asyncio.sleep(WARM_UP_DELAY_S)
    await asyncio.to_thread(dispatcher.warm_up)


def _limits(network: NetworkConfig) -> ServerLimits:
    return ServerLimits(
        request_max_bytes=network.socket_request_max_bytes,
        read_budget_bytes=network.tidelog_read_budget_bytes,
        connections_max=network.max_connections,
        connections_max_per_ip=network.max_connections_per_ip,
        connections_max_per_ip_overrides=network.connection_overrides,
        descriptor_max=_connection_descriptor_max(),
        idle_max_ms=network.connections_max_idle_ms,
        slow_reader_max_ms=network.tidelog_slow_reader_timeout_ms,
        send_buffer_bytes=network.socket_send_buffer_bytes,
        receive_buffer_bytes=network.socket_receive_buffer_bytes,
    )


def _connection_descriptor_max() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(soft // 8, LOG_DESCRIPTORS_MAX)


def _request_memory_bytes(network: NetworkConfig) -> int:
    if network.queued_max_request_bytes > 0:
        return network.queued_max_request_bytes
    return network.tidelog_response_memory_bytes


def _not_serving(_connection: Connection, _frame: memoryview) -> Answer:
    raise AssertionError("no connection is accepted before the broker is ready")


def _first(group: BaseExceptionGroup[TidelogError]) -> TidelogError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, TidelogError)
    return error


def end_process(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """End the process: a broker that has seen the impossible must not acknowledge more."""
    error = context.get("exception")
    logger.error(
        "unexpected failure in a callback",
        extra={"reason": context.get("message")},
        exc_info=error if isinstance(error, BaseException) else None,
    )
    if not isinstance(error, OSError):
        logging.shutdown()
        os._exit(70)
