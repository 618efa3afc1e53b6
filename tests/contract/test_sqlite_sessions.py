"""Sessions on one SQLite file from several processes that are killed and stopped (C1, C6)."""

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.coordinator_stores import on_loop
from tests.contract.session_child import SessionChild, held_by, until_absent
from tidelog.base.errors import StorageError
from tidelog.coordination import sqlite
from tidelog.coordination.expiry import expire_owner
from tidelog.coordination.port import Coordinator
from tidelog.coordination.sqlite_tree import SqliteTree

SHORT_TIMEOUT_MS = 600
LONG_TIMEOUT_MS = 60_000


Start = Callable[[int], SessionChild]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "coordination.db"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    children: list[SessionChild] = []

    def begin(session_timeout_ms: int) -> SessionChild:
        children.append(SessionChild(f"sqlite:{path}", session_timeout_ms))
        return children[-1]

    yield begin
    for child in children:
        child.close()


async def connect(path: Path, session_timeout_ms: int) -> Coordinator:
    return await sqlite.connect(
        path,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=session_timeout_ms // 4,
    )


@on_loop
async def test_a_killed_process_is_noticed_long_before_its_lease_ends(
    path: Path, start: Start
) -> None:
    session = await connect(path, LONG_TIMEOUT_MS)
    child = start(LONG_TIMEOUT_MS)
    held_by(child, "/claim")
    child.kill()
    assert await until_absent(session, "/claim") < 2
    await session.create("/claim", b"", ephemeral=True)
    await session.close()


@on_loop
async def test_processes_killed_together_are_seen_gone_together(path: Path, start: Start) -> None:
    session = await connect(path, LONG_TIMEOUT_MS)
    await session.ensure("/members")
    children = [start(LONG_TIMEOUT_MS) for _ in range(3)]
    for number, child in enumerate(children):
        held_by(child, f"/members/{number}")
    lists = session.watch_children("/members")
    assert await anext(lists) == ["0", "1", "2"]
    locker = SqliteTree(path)
    locker.begin()  # Nobody can be declared dead before all of them are.
    for child in children:
        child.kill()
    locker.roll_back()
    assert await anext(lists) == []
    locker.close()
    await session.close()


@on_loop
async def test_a_stopped_process_is_noticed_when_its_lease_ends(path: Path, start: Start) -> None:
    session = await connect(path, SHORT_TIMEOUT_MS)
    child = start(SHORT_TIMEOUT_MS)
    held_by(child, "/claim")
    child.tell("wait")
    child.signal(signal.SIGSTOP)
    elapsed_s = await until_absent(session, "/claim")
    assert elapsed_s > SHORT_TIMEOUT_MS / 1_000 / 2
    child.signal(signal.SIGCONT)
    assert await asyncio.to_thread(child.answer) == "lost"
    await session.close()


@on_loop
async def test_a_session_that_is_declared_dead_finds_out(path: Path, start: Start) -> None:
    """B3: the lab expires sessions of brokers that are well."""
    session = await connect(path, LONG_TIMEOUT_MS)
    child = start(LONG_TIMEOUT_MS)
    held_by(child, "/claim")
    child.tell("wait")
    assert expire_owner(path, "/claim")
    assert await session.get("/claim") is None
    assert await asyncio.to_thread(child.answer) == "lost"
    assert not expire_owner(path, "/claim")
    await session.close()


@on_loop
async def test_a_session_outlives_a_blocked_event_loop(path: Path, start: Start) -> None:
    session = await connect(path, SHORT_TIMEOUT_MS)
    child = start(SHORT_TIMEOUT_MS)
    held_by(child, "/claim")
    child.tell(f"block {3 * SHORT_TIMEOUT_MS / 1_000}")
    assert await asyncio.to_thread(child.answer) == "blocked"
    node = await session.get("/claim")
    assert node is not None
    assert node.owner_session == child.session_id
    await session.close()


def test_processes_stopped_and_resumed_together_do_not_bury_each_other(start: Start) -> None:
    """As after Ctrl-Z and fg: every lease is overdue, but nobody was awake to judge it."""
    children = [start(SHORT_TIMEOUT_MS) for _ in range(3)]
    for child in children:
        child.signal(signal.SIGSTOP)
    time.sleep(2 * SHORT_TIMEOUT_MS / 1_000)  # Time passing is what is tested.
    for child in children:
        child.signal(signal.SIGCONT)
    time.sleep(SHORT_TIMEOUT_MS / 1_000)
    for number, child in enumerate(children):
        held_by(child, f"/claim-{number}")


@on_loop
async def test_whoever_restarts_after_a_kill_finds_none_of_its_claims(
    path: Path, start: Start
) -> None:
    for _ in range(3):
        child = start(LONG_TIMEOUT_MS)
        held_by(child, "/claim")
        child.kill()
    session = await connect(path, LONG_TIMEOUT_MS)
    assert await session.get("/claim") is None
    assert len(list(path.with_name(f"{path.name}-sessions").iterdir())) == 1
    await session.close()


@on_loop
async def test_what_was_acknowledged_before_a_kill_is_there_after_it(
    path: Path, start: Start
) -> None:
    for round_number in range(5):
        child = start(LONG_TIMEOUT_MS)
        node = f"/counter-{round_number}"
        child.tell(f"count {node}")
        for _ in range(20 * (round_number + 1)):
            child.answer()
        child.kill()
        acknowledged = [int(line) for line in child.rest() if line]
        session = await connect(path, LONG_TIMEOUT_MS)
        number, copy = await session.get_many([node, f"{node}-copy"])
        assert number is not None
        assert copy is not None
        assert number.value == copy.value  # K2
        assert int(number.value) >= max(acknowledged, default=20 * (round_number + 1))  # K1
        await session.close()


@on_loop
async def test_nodes_survive_a_restart_but_ephemeral_ones(path: Path) -> None:
    session = await connect(path, LONG_TIMEOUT_MS)
    await session.create("/kept", b"value")
    await session.create("/claim", b"", ephemeral=True)
    before = await session.get("/kept")
    await session.close()
    session = await connect(path, LONG_TIMEOUT_MS)
    assert await session.get("/kept") == before
    assert await session.children("/") == ["kept"]
    await session.create("/later", b"")
    later = await session.get("/later")
    assert before is not None
    assert later is not None
    assert later.creation_id > before.modification_id
    await session.close()


@on_loop
async def test_a_write_waits_for_another_process_that_has_the_file_locked(path: Path) -> None:
    session = await connect(path, LONG_TIMEOUT_MS)
    locker = SqliteTree(path)
    locker.begin()
    write = asyncio.create_task(session.create("/a", b""))
    done, _pending = await asyncio.wait([write], timeout=0.2)
    assert not done
    locker.roll_back()
    await write
    locker.close()
    await session.close()


@on_loop
async def test_a_full_disk_refuses_writes_but_costs_no_session(path: Path, start: Start) -> None:
    session = await connect(path, SHORT_TIMEOUT_MS)
    child = start(SHORT_TIMEOUT_MS)
    held_by(child, "/claim")
    child.tell("fill /filled 300000")
    refusal = await asyncio.to_thread(child.answer)
    assert refusal.startswith("refused after ")
    assert str(path) in refusal
    assert await asyncio.to_thread(child.answer) == "recovered"
    assert await session.get("/claim") is not None
    assert "after" in await session.children("/filled")
    await session.close()


def test_a_file_that_is_no_database_is_refused_by_name(path: Path) -> None:
    path.write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(StorageError, match=r"coordination\.db"):
        asyncio.run(connect(path, LONG_TIMEOUT_MS))


@on_loop
async def test_a_file_of_a_later_tidelog_is_refused_by_name(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageError, match=r"coordination\.db.*99"):
        await connect(path, LONG_TIMEOUT_MS)


@on_loop
async def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/c\.db"):
        await connect(tmp_path / "file" / "c.db", LONG_TIMEOUT_MS)


@on_loop
async def test_a_thousand_calls_at_once_are_all_answered(path: Path) -> None:
    session = await connect(path, LONG_TIMEOUT_MS)
    await asyncio.gather(*(session.create(f"/{number}", b"") for number in range(2_500)))
    assert len(await session.children("/")) == 2_500
    await session.close()


@on_loop
async def test_sessions_of_one_process_end_one_by_one(path: Path) -> None:
    sessions = [await connect(path, SHORT_TIMEOUT_MS) for _ in range(3)]
    for number, each in enumerate(sessions):
        await each.create(f"/{number}", b"", ephemeral=True)
    await sessions[0].close()
    lost = asyncio.create_task(sessions[1].session_lost())
    done, _pending = await asyncio.wait([lost], timeout=2 * SHORT_TIMEOUT_MS / 1_000)
    assert not done
    assert await sessions[1].children("/") == ["1", "2"]
    lost.cancel()
    for each in sessions[1:]:
        await each.close()


def test_a_session_ends_with_its_event_loop(path: Path) -> None:
    """Whoever forgets to close a session does not keep its claims for ever."""

    async def forget() -> None:
        session = await connect(path, LONG_TIMEOUT_MS)
        await session.create("/claim", b"", ephemeral=True)

    async def wait() -> None:
        session = await connect(path, LONG_TIMEOUT_MS)
        await until_absent(session, "/claim")
        await session.close()

    asyncio.run(forget())
    asyncio.run(asyncio.wait_for(wait(), 30))


@on_loop
async def test_a_session_whose_file_cannot_be_read_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C6: the file may hold our death sentence, so silence cannot be taken for consent."""

    def fail(_tree: SqliteTree) -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    session = await connect(path, SHORT_TIMEOUT_MS)
    await session.create("/claim", b"", ephemeral=True)
    begun = time.monotonic()
    monkeypatch.setattr(SqliteTree, "changed_elsewhere", fail)
    await session.session_lost()
    assert time.monotonic() - begun > SHORT_TIMEOUT_MS / 1_000 / 2
    monkeypatch.undo()
    successor = await connect(path, SHORT_TIMEOUT_MS)
    assert await successor.get("/claim") is None
    await successor.close()
