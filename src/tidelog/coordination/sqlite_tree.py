"""The coordinator's tree in an SQLite file. Blocking; used by one thread (`sqlite.py`).

    node      one row per node; its key is (parent, name), so the children of a node lie together
    session   one row per living session; ephemeral nodes name theirs in `owner`
    counter   the id of the last write

Every write happens between `begin` and `commit`, and `begin` takes the write lock at once: a
transaction that reads first and asks for the lock later can fail halfway for no fault of its own.
Each group of operations inside gets a savepoint, so several callers can share one flush of the disk
and still fail one by one.

`children_version` of a node grows when a child comes or goes. It lets a watch on the children of a
node with a thousand of them be checked by reading one row.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from tidelog.base.errors import StorageError
from tidelog.coordination.paths import ROOT, ancestors, split
from tidelog.coordination.port import (
    BadVersion,
    Check,
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

SCHEMA_VERSION = 1

_SCHEMA = (
    """CREATE TABLE node (
        parent TEXT NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,
        version INTEGER NOT NULL,
        children_version INTEGER NOT NULL,
        creation_id INTEGER NOT NULL,
        modification_id INTEGER NOT NULL,
        owner INTEGER,
        PRIMARY KEY (parent, name)
    ) WITHOUT ROWID""",
    "CREATE INDEX node_owner ON node (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE session (id INTEGER PRIMARY KEY, process_id INTEGER NOT NULL)",
    "CREATE TABLE counter (write_id INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (0)",
    "INSERT INTO node VALUES ('', '', x'', 0, 0, 0, 0, NULL)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_SELECT = """SELECT value, version, creation_id, modification_id, owner
    FROM node WHERE parent = ? AND name = ?"""
_INSERT = "INSERT INTO node VALUES (?, ?, ?, 0, 0, ?, ?, ?)"
_UPDATE = """UPDATE node SET value = ?, version = version + 1, modification_id = ?
    WHERE parent = ? AND name = ?"""
_DELETE = "DELETE FROM node WHERE parent = ? AND name = ?"
_CHILDREN_CHANGED = """UPDATE node SET children_version = children_version + 1
    WHERE parent = ? AND name = ?"""

Fingerprint = tuple[int, int] | None


class SqliteTree:
    """One connection. Nothing here waits for a lock: BUSY comes out as sqlite3.OperationalError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, cached_statements=64
        )
        self._write_id = 0
        self._data_version = -1
        self._identity: tuple[int, int] | None = None

    def close(self) -> None:
        self._connection.close()

    def configure(self) -> None:
        """Set what SQLite keeps per connection, and the journal mode, which it keeps per file."""
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA synchronous = FULL")
        self._identity = _identity(self._path)

    def begin(self) -> None:
        self._execute("BEGIN IMMEDIATE")
        if self._identity is not None and self._identity != _identity(self._path):
            # SQLite would go on writing to a file that nobody will ever find again.
            self.roll_back()
            raise sqlite3.DatabaseError("the file was removed or replaced")
        (version,) = self._row("PRAGMA user_version", ())
        if version == 0:
            for statement in _SCHEMA:
                self._execute(statement)
        elif version != SCHEMA_VERSION:
            self.roll_back()
            raise StorageError(
                f"{self._path} has schema version {version}; this tidelog knows {SCHEMA_VERSION}"
            )
        (self._write_id,) = self._row("SELECT write_id FROM counter", ())

    def commit(self) -> None:
        """Return once everything since `begin` is on stable storage."""
        self._execute("UPDATE counter SET write_id = ?", (self._write_id,))
        self._execute("COMMIT")

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._execute("ROLLBACK")

    def get(self, path: str) -> Node | None:
        row = self._connection.execute(_SELECT, _key(path)).fetchone()
        return None if row is None else Node(*row)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        # One read transaction: taking and dropping the read lock per row would double the cost.
        self._execute("BEGIN")
        try:
            return [self.get(path) for path in paths]
        finally:
            self.roll_back()

    def children(self, path: str) -> list[str]:
        rows = self._connection.execute(
            "SELECT name FROM node WHERE parent = ? ORDER BY name", (path,)
        )
        return [name for (name,) in rows]

    def node_fingerprint(self, path: str) -> Fingerprint:
        """Differs whenever the node does; None is absent."""
        return self._fingerprint("SELECT creation_id, version", path)

    def children_fingerprint(self, path: str) -> Fingerprint:
        """Differs whenever the list of children does."""
        return self._fingerprint("SELECT creation_id, children_version", path)

    def changed_elsewhere(self) -> bool:
        """Whether another connection has committed since this was last asked."""
        before = self._data_version
        (self._data_version,) = self._row("PRAGMA data_version", ())
        return self._data_version != before

    def apply(self, operations: Sequence[Operation], session_id: int) -> None:
        """All of `operations` or none; raises what the first refused one alone would raise."""
        self._execute("SAVEPOINT operations")
        try:
            _Application(self._connection, self._next_write_id(), session_id).run(operations)
        except CoordinatorRefused:
            self._execute("ROLLBACK TO operations")
            self._execute("RELEASE operations")
            raise
        self._execute("RELEASE operations")

    def ensure(self, path: str, session_id: int) -> None:
        steps = [step for step in (*ancestors(path), path) if self.get(step) is None]
        self.apply([Create(step, b"") for step in steps], session_id)

    def delete_tree(self, path: str) -> None:
        parent, name = split(path)
        self._next_write_id()
        # '0' is the character after '/': the range is every path that begins with `path`/.
        self._execute(
            "DELETE FROM node WHERE parent = ? OR (parent > ? AND parent < ?)",
            (path, f"{path}/", f"{path}0"),
        )
        if self._connection.execute(_DELETE, (parent, name)).rowcount:
            self._execute(_CHILDREN_CHANGED, _key(parent))

    def sessions(self) -> list[int]:
        return [session_id for (session_id,) in self._connection.execute("SELECT id FROM session")]

    def has_session(self, session_id: int) -> bool:
        return self._row("SELECT count(*) FROM session WHERE id = ?", (session_id,)) == (1,)

    def add_session(self, session_id: int, *, process_id: int) -> None:
        self._execute("INSERT INTO session VALUES (?, ?)", (session_id, process_id))

    def end_session(self, session_id: int) -> None:
        """Remove the session and its ephemeral nodes; absent already is fine."""
        self._next_write_id()
        parents = self._connection.execute(
            "SELECT DISTINCT parent FROM node WHERE owner = ?", (session_id,)
        ).fetchall()
        self._execute("DELETE FROM node WHERE owner = ?", (session_id,))
        for (parent,) in parents:
            self._execute(_CHILDREN_CHANGED, _key(parent))
        self._execute("DELETE FROM session WHERE id = ?", (session_id,))

    def _next_write_id(self) -> int:
        assert self._connection.in_transaction
        self._write_id += 1
        return self._write_id

    def _fingerprint(self, select: str, path: str) -> Fingerprint:
        row: tuple[int, int] | None = self._connection.execute(
            f"{select} FROM node WHERE parent = ? AND name = ?", _key(path)
        ).fetchone()
        return row

    def _row(self, statement: str, parameters: tuple[int, ...]) -> tuple[int, ...]:
        row: tuple[int, ...] = self._connection.execute(statement, parameters).fetchone()
        return row

    def _execute(self, statement: str, parameters: tuple[str | int, ...] = ()) -> None:
        self._connection.execute(statement, parameters)


class _Application:
    """Applies one caller's operations inside its savepoint.

    A topic of a thousand partitions is two thousand Creates, so what the operations before have
    shown is remembered: whether a parent may have children is asked once, and a parent made by the
    same caller needs no new children version.
    """

    def __init__(self, connection: sqlite3.Connection, write_id: int, session_id: int) -> None:
        self._connection = connection
        self._write_id = write_id
        self._session_id = session_id
        self._fertile: set[str] = set()
        self._created: set[str] = set()
        self._parents_changed: set[str] = set()

    def run(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self._apply(operation)
        for parent in self._parents_changed - self._created:
            self._connection.execute(_CHILDREN_CHANGED, _key(parent))

    def _apply(self, operation: Operation) -> None:
        match operation:
            case Create():
                self._create(operation)
            case Set(path, value, expected_version):
                self._require(path, expected_version)
                self._connection.execute(_UPDATE, (value, self._write_id, *_key(path)))
            case Delete(path, expected_version):
                self._require(path, expected_version)
                self._delete(path)
            case Check(path, expected_version):
                self._require(path, expected_version)
            case _:
                assert_never(operation)

    def _create(self, operation: Create) -> None:
        parent, name = split(operation.path)
        if parent not in self._fertile:
            self._require_fertile(parent, operation.path)
        owner = self._session_id if operation.ephemeral else None
        row = (parent, name, operation.value, self._write_id, self._write_id, owner)
        try:
            self._connection.execute(_INSERT, row)
        except sqlite3.IntegrityError:
            raise NodeExists(operation.path) from None
        self._parents_changed.add(parent)
        self._created.add(operation.path)
        if not operation.ephemeral:
            self._fertile.add(operation.path)

    def _require_fertile(self, parent: str, path: str) -> None:
        row = self._connection.execute(_SELECT, _key(parent)).fetchone()
        if row is None:
            raise NoNode(path)
        if Node(*row).owner_session is not None:
            raise NoChildrenForEphemerals(path)
        self._fertile.add(parent)

    def _require(self, path: str, expected_version: int | None) -> None:
        row = self._connection.execute(_SELECT, _key(path)).fetchone()
        if row is None:
            raise NoNode(path)
        if expected_version is not None and Node(*row).version != expected_version:
            raise BadVersion(path)

    def _delete(self, path: str) -> None:
        child = self._connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,))
        if child.fetchone() is not None:
            raise NotEmpty(path)
        parent, name = split(path)
        self._connection.execute(_DELETE, (parent, name))
        self._parents_changed.add(parent)
        self._created.discard(path)
        self._fertile.discard(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _key(path: str) -> tuple[str, str]:
    """Where the row of `path` is; the root has no parent and no name."""
    return ("", "") if path == ROOT else split(path)
