"""Sessions on a ZooKeeper ensemble whose servers, clients and wires fail (C1, C6)."""

import asyncio
import logging
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from kazoo.client import KazooClient

from tests.contract.coordinator_stores import CONNECTION_TIMEOUT_MS, on_loop
from tests.contract.cut_off import Wire
from tests.contract.ensemble import SharedEnsemble
from tests.contract.session_child import SessionChild, held_by, until_absent
from tidelog.base.errors import SessionLost
from tidelog.coordination import zookeeper
from tidelog.coordination.port import (
    Coordinator,
    CoordinatorUnavailable,
    Create,
    NodeExists,
    Set,
)

SHORT_TIMEOUT_MS = 2_000
LONG_TIMEOUT_MS = 20_000
# What a server may take to notice: it looks at its sessions once in a tick, 200 ms in these tests.
NOTICE_S = 2.0

Start = Callable[[str, int], SessionChild]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[SessionChild] = []

    def begin(hosts: str, session_timeout_ms: int) -> SessionChild:
        children.append(SessionChild(f"zookeeper:{hosts}", session_timeout_ms))
        return children[-1]

    yield begin
    for child in children:
        child.close()


@pytest.fixture
def hosts(ensemble: SharedEnsemble) -> str:
    return ensemble.new_hosts()


async def connect(hosts: str, session_timeout_ms: int) -> Coordinator:
    return await zookeeper.connect(
        hosts,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=CONNECTION_TIMEOUT_MS,
    )


@asynccontextmanager
async def wired(ensemble: SharedEnsemble, hosts: str) -> AsyncIterator[tuple[Wire, str]]:
    """A wire to one of the servers, and `hosts` as seen through it."""
    wire = Wire(ensemble.living_address())
    address = await wire.open()
    _, _, chroot = hosts.partition("/")
    try:
        yield wire, f"{address}/{chroot}"
    finally:
        await wire.close()


class Counting:
    """A node and its copy, counted up together; every acknowledged number is remembered."""

    def __init__(self, session: Coordinator) -> None:
        self._session = session
        self.acknowledged: list[int] = []
        self.longest_pause_s = 0.0
        self.unknown_count = 0

    async def run(self, until: asyncio.Event) -> None:
        await self._session.transact([Create("/number", b"0"), Create("/copy", b"0")])
        acknowledged_s = time.monotonic()
        while not until.is_set():
            number = (self.acknowledged or [0])[-1] + 1
            try:
                await self._set(number)
            except CoordinatorUnavailable:
                self.unknown_count += 1
                # Whether it happened is asked, as everybody has to who goes on.
                node = await self._session.get("/number")
                assert node is not None
                assert int(node.value) in {number - 1, number}
                if int(node.value) != number:
                    continue
            self.acknowledged.append(number)
            self.longest_pause_s = max(self.longest_pause_s, time.monotonic() - acknowledged_s)
            acknowledged_s = time.monotonic()

    async def _set(self, number: int) -> None:
        value = b"%d" % number
        # K3: the version is the number of writes, so a write done twice would be refused.
        await self._session.transact(
            [Set("/number", value, number - 1), Set("/copy", value, number - 1)]
        )


@on_loop
async def test_the_promises_hold_while_the_leader_is_killed(
    whole_ensemble: SharedEnsemble, hosts: str, record_property: Callable[[str, object], None]
) -> None:
    writer, watcher, holder = [await connect(hosts, LONG_TIMEOUT_MS) for _ in range(3)]
    await holder.create("/claim", b"", ephemeral=True)
    seen: list[int] = []
    claims: list[bool] = []

    async def follow() -> None:
        async for node in watcher.watch("/number"):
            seen.append(-1 if node is None else int(node.value))  # noqa: PERF401 - as it happens

    async def guard() -> None:
        async for node in watcher.watch("/claim"):
            claims.append(node is not None)  # noqa: PERF401

    enough = asyncio.Event()
    counting = Counting(writer)
    followers = [asyncio.create_task(follow()), asyncio.create_task(guard())]
    work = asyncio.create_task(counting.run(enough))
    await until(lambda: len(counting.acknowledged) >= 20)
    await asyncio.to_thread(whole_ensemble.kill_leader)
    before = len(counting.acknowledged)
    await until(lambda: len(counting.acknowledged) >= before + 50)
    enough.set()
    await work
    record_property("pause_s", counting.longest_pause_s)

    last = counting.acknowledged[-1]
    assert counting.acknowledged == list(range(1, last + 1))
    reader = await connect(hosts, LONG_TIMEOUT_MS)
    number, copy = await reader.get_many(["/number", "/copy"])
    assert number is not None
    assert copy is not None
    assert (int(number.value), number.version) == (last, last)  # K1, K3
    assert (copy.value, copy.version) == (number.value, number.version)  # K2
    await until(lambda: bool(seen) and seen[-1] == last)  # K4
    assert seen == sorted(set(seen))
    claim = await reader.get("/claim")
    assert claim is not None
    assert claim.owner_session == holder.session_id  # K5
    assert claims == [True]
    with pytest.raises(NodeExists):
        await reader.create("/claim", b"", ephemeral=True)
    assert counting.longest_pause_s < LONG_TIMEOUT_MS / 1_000
    for task in followers:
        task.cancel()
    for session in (writer, watcher, holder, reader):
        await session.close()


async def until(is_true: Callable[[], bool]) -> None:
    """Ended by the time limit of the test."""
    while not is_true():  # noqa: ASYNC110 - what changes here has no event to wait for
        await asyncio.sleep(0.005)


@on_loop
async def test_clusters_in_different_folders_do_not_see_each_other(
    ensemble: SharedEnsemble,
) -> None:
    one = await connect(f"{ensemble.new_hosts()}/deeper/still", LONG_TIMEOUT_MS)
    other = await connect(f"{ensemble.new_hosts()}/deeper/still", LONG_TIMEOUT_MS)
    everything = await connect(ensemble.hosts, LONG_TIMEOUT_MS)
    await one.create("/controller", b"one", ephemeral=True)
    await other.create("/controller", b"other", ephemeral=True)
    node = await one.get("/controller")
    assert node is not None
    assert node.value == b"one"
    assert await one.children("/") == ["controller"]
    assert await everything.get("/controller") is None
    await one.delete_tree("/controller")
    assert await other.children("/") == ["controller"]
    for session in (one, other, everything):
        await session.close()


@on_loop
async def test_a_folder_that_is_there_is_used_as_it_is(hosts: str) -> None:
    first = await connect(hosts, LONG_TIMEOUT_MS)
    await first.create("/kept", b"value")
    await first.close()
    second = await connect(f"{hosts}/", LONG_TIMEOUT_MS)
    assert await second.children("/") == ["kept"]
    await second.close()


@on_loop
async def test_a_node_that_another_made_without_a_value_is_empty(hosts: str) -> None:
    session = await connect(hosts, LONG_TIMEOUT_MS)
    other = KazooClient(hosts)
    await asyncio.to_thread(other.start)
    await asyncio.to_thread(other.create, "/null", None)
    await asyncio.to_thread(other.stop)
    other.close()
    node = await session.get("/null")
    assert node is not None
    assert node.value == b""
    await session.close()


@on_loop
async def test_the_claims_of_a_killed_process_go_when_its_session_ends(
    hosts: str, start: Start, record_property: Callable[[str, object], None]
) -> None:
    session = await connect(hosts, LONG_TIMEOUT_MS)
    child = await asyncio.to_thread(start, hosts, SHORT_TIMEOUT_MS)
    held_by(child, "/claim")
    child.kill()
    elapsed_s = await until_absent(session, "/claim")
    record_property("noticed_s", elapsed_s)
    assert elapsed_s < SHORT_TIMEOUT_MS / 1_000 + NOTICE_S
    await session.create("/claim", b"", ephemeral=True)
    await session.close()


@on_loop
async def test_a_stopped_process_loses_its_claims_and_hears_of_it(hosts: str, start: Start) -> None:
    session = await connect(hosts, LONG_TIMEOUT_MS)
    child = await asyncio.to_thread(start, hosts, SHORT_TIMEOUT_MS)
    held_by(child, "/claim")
    child.tell("wait")
    child.signal(signal.SIGSTOP)
    elapsed_s = await until_absent(session, "/claim")
    assert elapsed_s < SHORT_TIMEOUT_MS / 1_000 + NOTICE_S
    child.signal(signal.SIGCONT)
    assert await asyncio.to_thread(child.answer) == "lost"
    await session.close()


@on_loop
async def test_a_session_outlives_a_blocked_event_loop(hosts: str, start: Start) -> None:
    session = await connect(hosts, LONG_TIMEOUT_MS)
    child = await asyncio.to_thread(start, hosts, SHORT_TIMEOUT_MS)
    held_by(child, "/claim")
    child.tell(f"block {2 * SHORT_TIMEOUT_MS / 1_000}")
    assert await asyncio.to_thread(child.answer) == "blocked"
    node = await session.get("/claim")
    assert node is not None
    assert node.owner_session == child.session_id
    held_by(child, "/another")
    await session.close()


@on_loop
async def test_whoever_is_cut_off_gives_up_before_another_can_have_its_claims(
    ensemble: SharedEnsemble, hosts: str
) -> None:
    timeout_ms = 3_000
    happened: list[str] = []

    async def take_over() -> None:
        await until_absent(other, "/claim")
        await other.create("/claim", b"", ephemeral=True)
        happened.append("taken over")

    async def give_up() -> None:
        await session.session_lost()
        happened.append("given up")

    other = await connect(hosts, LONG_TIMEOUT_MS)
    async with wired(ensemble, hosts) as (wire, hosts_through_wire):
        session = await connect(hosts_through_wire, timeout_ms)
        await session.create("/claim", b"", ephemeral=True)
        cut_s = time.monotonic()
        wire.cut()
        waiting = asyncio.create_task(session.create("/never", b""))
        taking_over = asyncio.create_task(take_over())
        await give_up()
        assert time.monotonic() - cut_s < timeout_ms / 1_000
        with pytest.raises(SessionLost):
            await waiting
        await taking_over
        assert happened == ["given up", "taken over"]
        wire.mend()  # That it could be heard again changes nothing.
        with pytest.raises(SessionLost):
            await session.get("/claim")
        await session.close()
    await other.close()


@on_loop
async def test_a_cut_shorter_than_the_session_costs_no_claim(
    ensemble: SharedEnsemble, hosts: str
) -> None:
    other = await connect(hosts, LONG_TIMEOUT_MS)
    async with wired(ensemble, hosts) as (wire, hosts_through_wire):
        session = await connect(hosts_through_wire, 3 * SHORT_TIMEOUT_MS)
        await session.create("/claim", b"", ephemeral=True)
        wire.cut()
        reading = asyncio.create_task(session.get("/claim"))
        done, _pending = await asyncio.wait([reading], timeout=SHORT_TIMEOUT_MS / 1_000)
        assert not done
        wire.mend()
        node = await reading
        assert node is not None
        assert node.owner_session == session.session_id
        assert await other.get("/claim") == node
        await session.close()
    await other.close()


@on_loop
async def test_what_changed_while_the_connection_was_lost_is_not_missed(
    ensemble: SharedEnsemble, hosts: str
) -> None:
    other = await connect(hosts, LONG_TIMEOUT_MS)
    await other.ensure("/list")
    async with wired(ensemble, hosts) as (wire, hosts_through_wire):
        session = await connect(hosts_through_wire, LONG_TIMEOUT_MS)
        nodes, lists = session.watch("/a"), session.watch_children("/list")
        assert await anext(nodes) is None
        assert await anext(lists) == []
        wire.cut()
        wire.drop_connections()
        await other.create("/a", b"first")
        await other.set("/a", b"newest")
        await other.create("/list/child", b"")
        wire.mend()
        node = await anext(nodes)
        assert node is not None
        assert node.value == b"newest"
        assert await anext(lists) == ["child"]
        await session.close()
    await other.close()


@on_loop
async def test_a_write_that_the_connection_took_with_it_is_not_known_to_have_happened(
    ensemble: SharedEnsemble, hosts: str
) -> None:
    async with wired(ensemble, hosts) as (wire, hosts_through_wire):
        session = await connect(hosts_through_wire, LONG_TIMEOUT_MS)
        wire.cut()
        writing = asyncio.create_task(session.create("/a", b""))
        reading = asyncio.create_task(session.get("/b"))
        await asyncio.sleep(0.2)  # Time for them to get stuck in the wire.
        wire.drop_connections()
        wire.mend()
        with pytest.raises(CoordinatorUnavailable):
            await writing
        assert await reading is None
        # When it is said, there is a connection again.
        await session.ensure("/a")
        await session.close()


@on_loop
async def test_thousands_of_calls_wait_for_a_connection_without_holding_the_loop_up(
    ensemble: SharedEnsemble, hosts: str
) -> None:
    async with wired(ensemble, hosts) as (wire, hosts_through_wire):
        session = await connect(hosts_through_wire, LONG_TIMEOUT_MS)
        wire.cut()
        wire.drop_connections()
        writing = asyncio.gather(
            *(session.create(f"/{number}", b"") for number in range(3_000)),
            return_exceptions=True,
        )
        longest_s = 0.0
        for _ in range(50):
            begun_s = time.monotonic()
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, time.monotonic() - begun_s)
        assert longest_s < LONG_TIMEOUT_MS / 1_000 / 4  # Far less, on a machine of its own.
        wire.mend()
        outcomes = await writing
        # Those that were handed over before the loss was noticed may or may not have happened.
        unknown_count = sum(isinstance(each, CoordinatorUnavailable) for each in outcomes)
        assert outcomes.count(None) + unknown_count == 3_000
        assert len(await session.children("/")) >= outcomes.count(None)
        await session.close()


@on_loop
async def test_thousands_of_nodes_are_read_in_one_go(hosts: str) -> None:
    session = await connect(hosts, LONG_TIMEOUT_MS)
    await session.transact([Create(f"/{number}", b"%d" % number) for number in range(3_000)])
    nodes = await session.get_many([f"/{number}" for number in range(3_001)])
    assert [node and int(node.value) for node in nodes] == [*range(3_000), None]
    await session.delete_tree("/0")
    assert len(await session.children("/")) == 2_999
    await session.close()


@on_loop
async def test_a_tree_of_thousands_is_deleted(hosts: str) -> None:
    session = await connect(hosts, LONG_TIMEOUT_MS)
    await session.ensure("/t")
    for tens in range(10):
        parent = f"/t/{tens}"
        children = [Create(f"{parent}/{number}", b"") for number in range(250)]
        await session.transact([Create(parent, b""), *children])
    await session.delete_tree("/t")
    assert await session.children("/") == []
    await session.close()


@on_loop
async def test_a_transaction_that_no_server_takes_is_refused_here(hosts: str) -> None:
    session = await connect(hosts, LONG_TIMEOUT_MS)
    with pytest.raises(CoordinatorUnavailable, match="nothing was written"):
        await session.transact([Create(f"/{number}", b"x" * 1_000) for number in range(1_100)])
    await session.transact([Create(f"/{number}", b"x" * 1_000) for number in range(900)])
    assert len(await session.children("/")) == 900
    await session.close()


@on_loop
async def test_where_nobody_answers_no_session_begins() -> None:
    begun_s = time.monotonic()
    with pytest.raises(CoordinatorUnavailable, match=r"127\.0\.0\.1:1 has answered within 300 ms"):
        await zookeeper.connect(
            "127.0.0.1:1/chroot", session_timeout_ms=LONG_TIMEOUT_MS, connection_timeout_ms=300
        )
    assert time.monotonic() - begun_s < 5


@on_loop
async def test_an_ordinary_life_says_nothing(hosts: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    session = await connect(hosts, LONG_TIMEOUT_MS)
    await session.create("/a", b"", ephemeral=True)
    await session.delete_tree("/a")
    await session.close()
    assert caplog.records == []


def test_a_session_ends_with_its_event_loop(hosts: str) -> None:
    """Whoever forgets to close a session does not keep its claims for ever."""

    async def forget() -> None:
        session = await connect(hosts, SHORT_TIMEOUT_MS)
        await session.create("/claim", b"", ephemeral=True)

    async def wait() -> None:
        session = await connect(hosts, LONG_TIMEOUT_MS)
        await until_absent(session, "/claim")
        await session.close()

    asyncio.run(forget())
    asyncio.run(asyncio.wait_for(wait(), 30))


def test_who_does_not_use_zookeeper_does_not_load_kazoo() -> None:
    program = "import sys, tidelog.node; sys.exit('kazoo' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
