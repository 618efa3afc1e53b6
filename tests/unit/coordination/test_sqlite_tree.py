"""The tree in SQLite and the tree in memory are the same tree."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordination.memory import MemoryTree
from tidelog.coordination.port import (
    Check,
    CoordinatorRefused,
    Create,
    Delete,
    Node,
    Operation,
    Set,
)
from tidelog.coordination.sqlite_tree import SqliteTree

IN_MEMORY = Path(":memory:")
SESSION = 1

PATHS = ["/a", "/a/b", "/a/b/c", "/a/bc", "/a.b", "/a0", "/d", "/d/e"]

paths = st.sampled_from(PATHS)
values = st.binary(max_size=3)
versions = st.none() | st.integers(0, 2)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, paths, values, st.booleans()),
    st.builds(Set, paths, values, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, st.integers(0, 2)),
)


@contextmanager
def sqlite_tree() -> Iterator[SqliteTree]:
    tree = SqliteTree(IN_MEMORY)
    try:
        yield tree
    finally:
        tree.close()


def apply_to_sqlite(tree: SqliteTree, steps: list[Operation]) -> type[CoordinatorRefused] | None:
    tree.begin()
    try:
        tree.apply(steps, SESSION)
    except CoordinatorRefused as refusal:
        return type(refusal)
    finally:
        tree.commit()
    return None


def apply_to_memory(tree: MemoryTree, steps: list[Operation]) -> type[CoordinatorRefused] | None:
    try:
        tree.transact(steps, SESSION)
    except CoordinatorRefused as refusal:
        return type(refusal)
    return None


def contents(tree: SqliteTree | MemoryTree) -> list[tuple[Node | None, list[str]]]:
    return [(tree.get(path), tree.children(path)) for path in PATHS]


@given(st.lists(st.lists(operations, min_size=1, max_size=6), max_size=12))
def test_any_transactions_leave_the_same_tree_as_in_memory(
    transactions: list[list[Operation]],
) -> None:
    memory = MemoryTree()
    with sqlite_tree() as tree:
        for steps in transactions:
            assert apply_to_sqlite(tree, steps) == apply_to_memory(memory, steps)
            assert contents(tree) == contents(memory)


@given(st.lists(st.lists(operations, min_size=1, max_size=6), max_size=8))
def test_a_fingerprint_differs_whenever_what_it_stands_for_does(
    transactions: list[list[Operation]],
) -> None:
    with sqlite_tree() as tree:
        apply_to_sqlite(tree, [])
        for steps in transactions:
            before = contents(tree)
            nodes_before = [tree.node_fingerprint(path) for path in PATHS]
            lists_before = [tree.children_fingerprint(path) for path in PATHS]
            apply_to_sqlite(tree, steps)
            for index, (node, names) in enumerate(contents(tree)):
                if node != before[index][0]:
                    assert tree.node_fingerprint(PATHS[index]) != nodes_before[index]
                if names != before[index][1]:
                    assert tree.children_fingerprint(PATHS[index]) != lists_before[index]


@given(st.sets(paths), paths)
def test_deleting_a_tree_leaves_what_is_not_in_it(present: set[str], victim: str) -> None:
    with sqlite_tree() as tree:
        tree.begin()
        for path in sorted(present):
            tree.ensure(path, SESSION)
        before = [path for path in PATHS if tree.get(path) is not None]
        tree.delete_tree(victim)
        tree.commit()
        after = [path for path in PATHS if tree.get(path) is not None]
    assert after == [
        path for path in before if path != victim and not path.startswith(f"{victim}/")
    ]


def test_the_end_of_a_session_takes_its_ephemeral_nodes_along() -> None:
    with sqlite_tree() as tree:
        tree.begin()
        tree.add_session(SESSION, process_id=7)
        tree.apply([Create("/a", b""), Create("/a/mine", b"", True)], SESSION)
        tree.apply([Create("/a/theirs", b"", True)], SESSION + 1)
        before = tree.children_fingerprint("/a")
        tree.end_session(SESSION)
        tree.end_session(SESSION)
        tree.commit()
        assert tree.children("/a") == ["theirs"]
        assert tree.children_fingerprint("/a") != before
        assert not tree.has_session(SESSION)
        assert tree.sessions() == []


@pytest.mark.parametrize("replacement", [None, b""])
def test_nothing_is_written_to_a_file_that_was_removed(
    tmp_path: Path, replacement: bytes | None
) -> None:
    """It would be gone with the process, although it was acknowledged."""
    path = tmp_path / "coordination.db"
    tree = SqliteTree(path)
    try:
        tree.configure()
        tree.begin()
        tree.commit()
        path.rename(tmp_path / "elsewhere.db")
        if replacement is not None:
            path.write_bytes(replacement)
        with pytest.raises(sqlite3.DatabaseError, match="removed or replaced"):
            tree.begin()
        (tmp_path / "elsewhere.db").rename(path)
        tree.begin()
        tree.commit()
    finally:
        tree.close()
