"""Sessions of others, declared dead although they are alive: a fault for whoever tests that (B3).

A real session ends when its lease has run out or its process is gone. This ends it in the middle of
its life, as an operator does who removes it, or a disk that loses it: its owner finds out at its
next look, drops its leaderships (C6) and begins another session.
"""

import sqlite3
import time
from pathlib import Path
from typing import Final

from tidelog.base.errors import StorageError
from tidelog.coordination.sqlite_tree import SqliteTree

_WAIT_MAX_S: Final = 10.0
_BACKOFF_S: Final = 0.005


def expire_owner(path: Path, node: str) -> bool:
    """End the session in the file at `path` that owns the ephemeral `node`; False if none does.

    StorageError if the file is locked by others for too long.
    """
    tree = SqliteTree(path)
    give_up_at = time.monotonic() + _WAIT_MAX_S
    try:
        while True:
            try:
                return _expire(tree, node)
            except sqlite3.OperationalError as error:
                if time.monotonic() >= give_up_at:
                    raise StorageError(f"{path} is in use: {error}") from error
                time.sleep(_BACKOFF_S)
    finally:
        tree.close()


def _expire(tree: SqliteTree, node: str) -> bool:
    tree.begin()
    try:
        found = tree.get(node)
        if found is None or found.owner_session is None:
            return False
        tree.end_session(found.owner_session)
        tree.commit()
        return True
    finally:
        tree.roll_back()
