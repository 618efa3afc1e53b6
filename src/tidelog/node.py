"""The composition root: the one place that builds real ports and gives them to a broker."""

import asyncio
import gc
import logging
import os
import random
import resource
import secrets
import signal
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
from tidelog.broker.broker import HASH_KEY_BYTES, Broker, BrokerPorts
from tidelog.broker.disk_executor import DiskExecutor
from tidelog.broker.left_tasks import left_tasks
from tidelog.broker.log_dir_runner import UNKNOWN_BOOT
from tidelog.broker.network import SocketNetwork
from tidelog.broker.shortcuts import SHORTCUTS
from tidelog.config.broker import BrokerConfig
from tidelog.coordination import sqlite
from tidelog.coordination.port import Coordinator
from tidelog.core.controller.image import Endpoint
from tidelog.storage.disk import RealDisk
from tidelog.storage.layout import BOOT_ID, META_PROPERTIES
from tidelog.storage.meta_properties import read_meta_properties
from tidelog.telemetry import logs

logger = logging.getLogger(__name__)

GC_THRESHOLD = 20_000
# The last one comes when the terminal is closed.
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What connections leave to logs of the files that this process may open: an eighth, up to this.
LOG_DESCRIPTORS_MAX = 1024
# How long tasks may go on when the broker has stopped, and there is nothing left to wait for.
LEFT_TASKS_S = 2.0


def run(config: BrokerConfig) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP. Returns the exit code of the process."""
    logs.configure("INFO")
    for warning in config.warnings:
        logger.warning("setting has no effect", extra={"reason": warning})
    # Requests make few cycles; looking for them on every 700 allocations costs latency.
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    return uvloop.run(Node(config).serve())


class Node:
    """One broker on this machine."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._disk: Disk = RealDisk()
        self._executors: list[DiskExecutor] = []
        self._stopping = asyncio.Event()

    async def serve(self) -> int:
        """Start, say so, serve until a signal, stop."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(end_process)
        for ending in ENDINGS:
            if signal.getsignal(ending) is not signal.SIG_IGN:  # As nohup leaves it.
                signal.signal(ending, partial(self._stop, loop))
        broker = Broker(self._with_found_cluster_id(), self._ports(loop))
        try:
            async with asyncio.TaskGroup() as tasks:
                await broker.run(tasks, stopping=self._stopping, on_ready=self._announce)
                await end_left_tasks(LEFT_TASKS_S)
        except* TidelogError as group:
            raise _first(group) from None
        for executor in self._executors:
            executor.close()
        return 0

    def _stop(self, loop: asyncio.AbstractEventLoop, _number: int, _frame: object) -> None:
        """Begin to stop, and be deaf to every later word to do so.

        A closed loop takes its own handlers with it, and a signal that comes between that and the
        end of the process would kill it: a clean stop with the exit code of a killed broker. What
        is ignored is ignored by all threads, also those that have yet to end.
        """
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)
        loop.call_soon_threadsafe(self._stopping.set)

    def _ports(self, loop: asyncio.AbstractEventLoop) -> BrokerPorts:
        return BrokerPorts(
            disk=self._disk,
            clock=SystemClock(),
            network=SocketNetwork(loop),
            connect=self._connect,
            executor=partial(self._new_executor, loop),
            chance=random.SystemRandom(),
            hash_key=secrets.token_bytes(HASH_KEY_BYTES),
            boot_id=_boot_id(),
            connection_descriptor_max=_connection_descriptor_max(),
            shortcuts=SHORTCUTS,
        )

    def _new_executor(self, loop: asyncio.AbstractEventLoop, name: str) -> DiskExecutor:
        executor = DiskExecutor(name, loop)
        self._executors.append(executor)
        return executor

    def _with_found_cluster_id(self) -> BrokerConfig:
        """A new cluster on folders that have an identity already goes by that (adoption).

        Not on those that a broker of ours left: their cluster has a coordinator.
        """
        coordination = self._config.coordination
        if coordination.tidelog_cluster_id is not None:
            return self._config
        if any(self._disk.exists(path / BOOT_ID) for path in self._config.log_dirs):
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

    def _announce(self, endpoints: Sequence[Endpoint]) -> None:
        first = endpoints[0]
        host = f"[{first.host}]" if ":" in first.host else first.host
        with suppress(OSError):  # Nobody reads it, or it goes to a disk that is full.
            sys.stdout.write(
                f"tidelog broker {self._config.broker_id} listening on {host}:{first.port}\n"
            )
            sys.stdout.flush()


async def end_left_tasks(within_s: float) -> None:
    """Let everybody else finish, and end whoever does not.

    Everything is closed and flushed by now: a task that still waits does so in vain, and the
    process, which others have wait for, would never end.
    """
    for task in await left_tasks(within_s):
        logger.warning("task was left when the broker had stopped", extra={"task": repr(task)})
        task.cancel()


def _connection_descriptor_max() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(soft // 8, LOG_DESCRIPTORS_MAX)


def _boot_id() -> str:
    """Another one after each start of the machine's kernel, and so of its page cache."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return UNKNOWN_BOOT


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
