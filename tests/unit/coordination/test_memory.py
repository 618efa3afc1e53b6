"""The coordinator in memory, beyond what the contract asks of every coordinator."""

import asyncio

import pytest

from tidelog.coordination.memory import MemoryTree
from tidelog.coordination.port import Create, Delete, NodeExists, NoNode, Set


def test_a_refused_transaction_is_undone_in_any_shape() -> None:
    tree = MemoryTree()
    tree.transact([Create("/a", b""), Create("/a/b", b"kept")], 1)
    kept = tree.get("/a/b")
    with pytest.raises(NoNode):
        tree.transact(
            [
                Delete("/a/b"),
                Delete("/a"),
                Create("/a", b"again"),
                Create("/x", b""),
                Create("/x/y", b""),
                Delete("/x/y"),
                Delete("/x"),
                Set("/absent", b""),
            ],
            1,
        )
    assert tree.get("/a/b") == kept
    assert tree.children("/") == ["a"]
    assert tree.children("/a") == ["b"]


def test_other_tasks_run_between_a_call_and_its_effect() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        session = tree.connect()

        async def intrude() -> None:
            tree.transact([Create("/a", b"intruder")], 0)

        intruder = asyncio.ensure_future(intrude())
        with pytest.raises(NodeExists):
            await session.create("/a", b"late")
        await intruder

    asyncio.run(scenario())


def test_expiring_a_session_that_has_ended_changes_nothing() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        session = tree.connect()
        await session.close()
        tree.expire(session.session_id)
        assert tree.children("/") == []

    asyncio.run(scenario())
