"""What every Coordinator promises (C1), on each implementation of the port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.contract.coordinator_stores import (
    MemoryStore,
    SimulatedStore,
    SqliteStore,
    Store,
    ZooKeeperStore,
    on_loop,
)
from tests.contract.ensemble import SharedEnsemble
from tidelog.base.errors import SessionLost
from tidelog.coordination.port import (
    BadVersion,
    Check,
    Coordinator,
    CoordinatorRefused,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
)

T = TypeVar("T")


@pytest.fixture(params=["memory", "simulated", "sqlite", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return MemoryStore()
        case "simulated":
            return SimulatedStore(seed=1)
        case "sqlite":
            return SqliteStore(tmp_path / "c.db")
        case _:
            ensemble: SharedEnsemble = request.getfixturevalue("ensemble")
            return ZooKeeperStore(ensemble.new_hosts())


async def present(coordinator: Coordinator, path: str) -> Node:
    node = await coordinator.get(path)
    assert node is not None
    return node


async def next_that(states: AsyncIterator[T], wanted: T) -> None:
    """Wait until a watch shows `wanted`; what it shows before is passed over."""
    async for state in states:
        if state == wanted:
            return


@on_loop
async def test_a_created_node_is_seen_by_every_session(store: Store) -> None:
    one, other = await store.connect(), await store.connect()
    await one.create("/a", b"value")
    assert (await present(other, "/a")).value == b"value"
    assert (await present(other, "/a")).owner_session is None
    await one.close()
    await other.close()


@on_loop
async def test_an_absent_node_is_none(store: Store) -> None:
    session = await store.connect()
    assert await session.get("/absent") is None
    assert await session.children("/absent") == []
    await session.close()


@on_loop
async def test_the_root_is_always_there(store: Store) -> None:
    session = await store.connect()
    assert (await present(session, "/")).value == b""
    assert await session.children("/") == []
    await session.close()


@on_loop
async def test_a_node_is_created_once(store: Store) -> None:
    session = await store.connect()
    await session.create("/a", b"first")
    with pytest.raises(NodeExists, match="/a"):
        await session.create("/a", b"second")
    assert (await present(session, "/a")).value == b"first"
    await session.close()


@on_loop
async def test_of_two_sessions_that_create_a_node_one_wins(store: Store) -> None:
    sessions = [await store.connect() for _ in range(4)]
    outcomes = await asyncio.gather(
        *(
            each.create("/claim", str(each.session_id).encode(), ephemeral=True)
            for each in sessions
        ),
        return_exceptions=True,
    )
    winners = [each for each, outcome in zip(sessions, outcomes, strict=True) if outcome is None]
    assert len(winners) == 1
    assert sum(isinstance(outcome, NodeExists) for outcome in outcomes) == 3
    assert (await present(sessions[0], "/claim")).owner_session == winners[0].session_id
    for each in sessions:
        await each.close()


@on_loop
async def test_a_node_needs_its_parent(store: Store) -> None:
    session = await store.connect()
    with pytest.raises(NoNode):
        await session.create("/a/b", b"")
    await session.close()


@on_loop
async def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    session = await store.connect()
    await session.create("/e", b"", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await session.create("/e/child", b"")
    await session.close()


@on_loop
async def test_versions_start_at_zero_and_grow_by_one(store: Store) -> None:
    session = await store.connect()
    await session.create("/a", b"")
    assert (await present(session, "/a")).version == 0
    assert await session.set("/a", b"x") == 1
    assert await session.set("/a", b"x", expected_version=1) == 2
    assert (await present(session, "/a")).version == 2
    await session.close()


@on_loop
async def test_a_write_against_an_older_version_is_refused(store: Store) -> None:
    session = await store.connect()
    await session.create("/a", b"")
    await session.set("/a", b"newer")
    with pytest.raises(BadVersion):
        await session.set("/a", b"older", expected_version=0)
    with pytest.raises(BadVersion):
        await session.delete("/a", expected_version=0)
    assert (await present(session, "/a")).value == b"newer"
    await session.close()


@on_loop
async def test_what_is_absent_can_be_neither_set_nor_deleted(store: Store) -> None:
    session = await store.connect()
    with pytest.raises(NoNode):
        await session.set("/a", b"")
    with pytest.raises(NoNode):
        await session.delete("/a")
    await session.close()


@on_loop
async def test_a_node_with_children_is_not_deleted(store: Store) -> None:
    session = await store.connect()
    await session.ensure("/a/b")
    with pytest.raises(NotEmpty):
        await session.delete("/a")
    await session.delete("/a/b")
    await session.delete("/a")
    assert await session.get("/a") is None
    await session.close()


@on_loop
async def test_ensure_makes_what_is_missing_and_keeps_what_is_there(store: Store) -> None:
    session = await store.connect()
    await session.create("/a", b"kept")
    await session.ensure("/a/b/c")
    await session.ensure("/a/b/c")
    assert (await present(session, "/a")).value == b"kept"
    assert (await present(session, "/a/b/c")).version == 0
    await session.close()


@on_loop
async def test_a_tree_is_deleted_whole_and_its_neighbours_stay(store: Store) -> None:
    session = await store.connect()
    for path in ("/t/a/x/y", "/t/a/x/z", "/t/ab", "/t/a.b/c", "/t/a0"):
        await session.ensure(path)
    await session.delete_tree("/t/a")
    await session.delete_tree("/t/a")
    assert await session.children("/t") == ["a.b", "a0", "ab"]
    assert await session.get_many(["/t/a", "/t/a/x", "/t/a/x/y", "/t/a/x/z"]) == [None] * 4
    assert await session.children("/t/a.b") == ["c"]
    await session.close()


@on_loop
async def test_children_are_named_in_order(store: Store) -> None:
    session = await store.connect()
    for name in ("b", "a", "c"):
        await session.ensure(f"/p/{name}/below")
    assert await session.children("/p") == ["a", "b", "c"]
    assert await session.children("/") == ["p"]
    await session.close()


@on_loop
async def test_many_nodes_are_read_at_once(store: Store) -> None:
    session = await store.connect()
    await session.create("/a", b"1")
    await session.create("/c", b"3")
    found = await session.get_many(["/a", "/b", "/c"])
    assert [node and node.value for node in found] == [b"1", None, b"3"]
    await session.close()


@on_loop
async def test_a_transaction_does_all_of_it(store: Store) -> None:
    session = await store.connect()
    await session.create("/old", b"")
    await session.create("/fence", b"")
    await session.transact(
        [
            Check("/fence", 0),
            Create("/new", b"n"),
            Create("/new/child", b"c"),
            Set("/new", b"changed", 0),
            Delete("/old"),
        ]
    )
    assert (await present(session, "/new")).value == b"changed"
    assert await session.children("/") == ["fence", "new"]
    assert await session.children("/new") == ["child"]
    await session.close()


@on_loop
async def test_a_transaction_of_checks_alone_compares_and_changes_nothing(store: Store) -> None:
    session, other = await store.connect(), await store.connect()
    await session.create("/a", b"")
    await session.create("/b", b"")
    before = await present(session, "/a")
    await session.transact([Check("/a", 0), Check("/b", 0)])
    assert await present(session, "/a") == before
    await other.set("/b", b"changed")
    with pytest.raises(BadVersion):
        await session.transact([Check("/a", 0), Check("/b", 0)])
    await session.close()
    await other.close()


REFUSED: list[tuple[Operation, type[CoordinatorRefused]]] = [
    (Create("/a", b""), NodeExists),
    (Create("/absent/x", b""), NoNode),
    (Set("/absent", b""), NoNode),
    (Set("/a", b"", 7), BadVersion),
    (Delete("/absent"), NoNode),
    (Delete("/p"), NotEmpty),
    (Check("/a", 7), BadVersion),
    (Check("/absent", 0), NoNode),
]


@pytest.mark.parametrize(("operation", "refusal"), REFUSED, ids=str)
@on_loop
async def test_a_transaction_does_all_or_nothing(
    store: Store, operation: Operation, refusal: type[CoordinatorRefused]
) -> None:
    session = await store.connect()
    for path in ("/a", "/p/q", "/gone"):
        await session.ensure(path)
    before = await session.get_many(["/a", "/p", "/gone"])
    with pytest.raises(refusal, match=operation.path):
        await session.transact(
            [
                Create("/new", b""),
                Create("/new/child", b""),
                Set("/p", b"changed"),
                Delete("/gone"),
                operation,
            ]
        )
    assert await session.get_many(["/a", "/p", "/gone"]) == before
    assert await session.children("/") == ["a", "gone", "p"]
    await session.close()


@on_loop
async def test_one_refused_call_does_not_spoil_calls_made_at_the_same_time(store: Store) -> None:
    session = await store.connect()
    await session.create("/taken", b"")
    outcomes = await asyncio.gather(
        *(session.create(path, b"") for path in ("/a", "/taken", "/b", "/none/x", "/c")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None), NodeExists, type(None), NoNode, type(None),
    ]  # fmt: skip
    assert await session.children("/") == ["a", "b", "c", "taken"]
    await session.close()


@on_loop
async def test_compare_and_set_loses_no_update(store: Store) -> None:
    sessions = [await store.connect() for _ in range(3)]
    await sessions[0].create("/counter", b"0")

    async def increment(session: Coordinator) -> None:
        for _ in range(20):
            while True:
                node = await present(session, "/counter")
                try:
                    await session.set(
                        "/counter", b"%d" % (int(node.value) + 1), expected_version=node.version
                    )
                    break
                except BadVersion:
                    continue

    await asyncio.gather(*map(increment, sessions))
    node = await present(sessions[0], "/counter")
    assert (node.value, node.version) == (b"60", 60)
    for each in sessions:
        await each.close()


@on_loop
async def test_a_node_made_again_has_a_larger_creation_id(store: Store) -> None:
    session = await store.connect()
    await session.create("/a", b"")
    first = await present(session, "/a")
    await session.delete("/a")
    await session.create("/a", b"")
    second = await present(session, "/a")
    assert second.creation_id > first.creation_id
    assert second.version == 0
    await session.close()


@on_loop
async def test_ids_tell_which_of_two_nodes_was_written_later(store: Store) -> None:
    session = await store.connect()
    await session.create("/state", b"")
    await session.create("/broker", b"")
    broker = await present(session, "/broker")
    assert (await present(session, "/state")).modification_id < broker.creation_id
    await session.set("/state", b"x")
    state = await present(session, "/state")
    assert state.modification_id > broker.creation_id > state.creation_id
    await session.close()


@on_loop
async def test_a_watch_yields_what_is_there_and_then_every_change(store: Store) -> None:
    watcher, writer = await store.connect(), await store.connect()
    states = watcher.watch("/a")
    assert await anext(states) is None
    await writer.create("/a", b"1")
    node = await anext(states)
    assert node is not None
    assert node.value == b"1"
    await writer.set("/a", b"2")
    node = await anext(states)
    assert node is not None
    assert (node.value, node.version) == (b"2", 1)
    await writer.delete("/a")
    assert await anext(states) is None
    await watcher.close()
    await writer.close()


@on_loop
async def test_a_session_sees_its_own_changes(store: Store) -> None:
    session = await store.connect()
    states = session.watch("/a")
    assert await anext(states) is None
    await session.create("/a", b"mine")
    node = await anext(states)
    assert node is not None
    assert node.value == b"mine"
    await session.close()


@on_loop
async def test_a_slow_watcher_gets_the_newest_state(store: Store) -> None:
    session = await store.connect()
    await session.create("/a", b"")
    states = session.watch("/a")
    await anext(states)
    for number in range(50):
        await session.set("/a", b"%d" % number)
    node = await anext(states)
    while node is not None and node.value != b"49":
        node = await anext(states)
    assert node is not None
    await session.close()


@on_loop
async def test_a_node_deleted_and_made_again_is_a_change(store: Store) -> None:
    watcher, writer = await store.connect(), await store.connect()
    await writer.create("/a", b"same")
    states = watcher.watch("/a")
    first = await anext(states)
    await writer.transact([Delete("/a"), Create("/a", b"same")])
    second = await anext(states)
    assert first is not None
    assert second is not None
    assert second.creation_id > first.creation_id
    await watcher.close()
    await writer.close()


@on_loop
async def test_children_are_watched_before_their_parent_is_there(store: Store) -> None:
    watcher, writer = await store.connect(), await store.connect()
    lists = watcher.watch_children("/p")
    assert await anext(lists) == []
    await writer.ensure("/p/b")
    await next_that(lists, ["b"])
    await writer.create("/p/a", b"")
    await next_that(lists, ["a", "b"])
    await writer.delete("/p/b")
    await next_that(lists, ["a"])
    await writer.delete_tree("/p")
    await next_that(lists, [])
    await watcher.close()
    await writer.close()


@on_loop
async def test_a_changed_child_is_no_change_of_the_list(store: Store) -> None:
    session = await store.connect()
    await session.ensure("/p/a")
    lists = session.watch_children("/p")
    assert await anext(lists) == ["a"]
    await session.set("/p/a", b"changed")
    await session.create("/p/b", b"")
    assert await anext(lists) == ["a", "b"]
    await session.close()


@on_loop
async def test_closing_removes_what_is_ephemeral_and_nothing_else(store: Store) -> None:
    leaving, staying = await store.connect(), await store.connect()
    await leaving.ensure("/members")
    await leaving.create("/members/1", b"", ephemeral=True)
    await staying.create("/members/2", b"", ephemeral=True)
    await leaving.create("/kept", b"")
    await leaving.close()
    assert await staying.children("/members") == ["2"]
    assert await staying.children("/") == ["kept", "members"]
    await staying.close()


@on_loop
async def test_the_end_of_a_session_fires_watches_on_its_claims(store: Store) -> None:
    holder, watcher = await store.connect(), await store.connect()
    await holder.create("/controller", b"", ephemeral=True)
    states, lists = watcher.watch("/controller"), watcher.watch_children("/")
    assert await anext(states) is not None
    assert await anext(lists) == ["controller"]
    await store.expire(holder)
    assert await anext(states) is None
    assert await anext(lists) == []
    await watcher.create("/controller", b"", ephemeral=True)
    await watcher.close()
    await holder.close()


@on_loop
async def test_a_lost_session_is_told_so(store: Store) -> None:
    session = await store.connect()
    lost = asyncio.create_task(session.session_lost())
    watching = asyncio.ensure_future(anext(session.watch_children("/none")))
    assert await watching == []
    states = session.watch("/a")
    assert await anext(states) is None
    assert not lost.done()
    await store.expire(session)
    await lost
    with pytest.raises(SessionLost):
        await anext(states)
    await session.close()


@on_loop
async def test_after_the_loss_every_call_raises_session_lost(store: Store) -> None:
    session = await store.connect()
    session_id = session.session_id
    assert session.is_reliable(0)
    await store.expire(session)
    await session.session_lost()
    assert not session.is_reliable(0)
    assert session.session_id == session_id
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: session.get("/a"),
        lambda: session.get_many(["/a"]),
        lambda: session.children("/"),
        lambda: session.create("/a", b""),
        lambda: session.ensure("/a"),
        lambda: session.set("/a", b""),
        lambda: session.delete("/a"),
        lambda: session.delete_tree("/a"),
        lambda: session.transact([]),
        lambda: anext(session.watch("/a")),
        lambda: anext(session.watch_children("/a")),
    ]
    for call in calls:
        with pytest.raises(SessionLost):
            await call()
    await session.session_lost()
    await session.close()


@on_loop
async def test_a_session_that_does_not_know_it_is_lost_cannot_write(store: Store) -> None:
    lost, other = await store.connect(), await store.connect()
    await store.expire(lost)
    with pytest.raises(SessionLost):
        await lost.create("/a", b"")
    assert await other.get("/a") is None
    await lost.close()
    await other.close()


@on_loop
async def test_closing_twice_is_closing_once(store: Store) -> None:
    session = await store.connect()
    await session.close()
    await session.close()
    await session.session_lost()


@on_loop
async def test_every_session_has_its_own_id(store: Store) -> None:
    sessions = [await store.connect() for _ in range(5)]
    assert len({each.session_id for each in sessions}) == 5
    for each in sessions:
        await each.close()


@on_loop
async def test_a_cancelled_watcher_leaves_the_session_in_order(store: Store) -> None:
    session = await store.connect()

    async def follow() -> None:
        async for _node in session.watch("/a"):
            pass

    task = asyncio.create_task(follow())
    await session.create("/a", b"")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await session.set("/a", b"still works")
    await session.close()
