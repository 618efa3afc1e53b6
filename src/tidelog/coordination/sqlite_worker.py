"""The thread behind one SQLite session: the only one that touches the session's connection.

    joining ──▶ serving ──┬─▶ closed    by request: ephemeral nodes go before anybody is told
                          └─▶ lost      declared dead by another session, or the file unreadable
                                        for as long as the session may live unseen

While serving it takes turns: answer what has been asked, then look around for commits of other
processes and for dead sessions. It looks every POLL_MS while there are other sessions, and less
often while there are none, because a broker that is alone waits for nobody.

Somebody else's lease is judged only by a worker that has itself been awake: after a stop (Ctrl-Z,
a debugger, a frozen machine) all leases look overdue, those of the healthy included, so for half
a session time-out only locks count. Its own it writes anew, and then asks the file, with the write
lock, whether somebody was awake and has judged it: whoever comes later sees the new one.
"""

import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import TypeVar, assert_never

from tidelog.base.errors import SessionLost, StorageError, TidelogError
from tidelog.coordination.port import CoordinatorRefused, CoordinatorUnavailable
from tidelog.coordination.session_file import SessionFile, SessionProbe, monotonic_ms
from tidelog.coordination.sqlite_tree import Fingerprint, SqliteTree

logger = logging.getLogger(__name__)

POLL_MS = 10
POLL_ALONE_MS = 50
GROUP_MAX_REQUESTS = 1_000
BUSY_WAIT_MAX_MS = 10_000
BUSY_BACKOFF_MIN_MS = 0.2
BUSY_BACKOFF_MAX_MS = 20.0

Answer = TypeVar("Answer")
Callback = Callable[[], None]
"""Something to be run on the event loop."""


@dataclass(frozen=True, slots=True)
class Read:
    """`run` asks the tree and returns the callback that delivers the answer."""

    run: Callable[[SqliteTree], Callback]
    fail: Callable[[TidelogError], None]


@dataclass(frozen=True, slots=True)
class Write:
    """Like Read, within a transaction. May be run again if the transaction has to be."""

    run: Callable[[SqliteTree], Callback]
    fail: Callable[[TidelogError], None]


@dataclass(slots=True, eq=False)
class Watch:
    """`read` returns the callback that offers the watcher what is there now."""

    fingerprint: Callable[[SqliteTree], Fingerprint]
    read: Callable[[SqliteTree], Callback]
    seen: Fingerprint = None


@dataclass(frozen=True, slots=True)
class Arm:
    watch: Watch


@dataclass(frozen=True, slots=True)
class Disarm:
    watch: Watch


@dataclass(frozen=True, slots=True)
class Close:
    """End the session."""


Request = Read | Write | Arm | Disarm | Close


class LoopClosed(Exception):
    """Nobody is left to answer to: the event loop of the session is closed."""


class SqliteWorker:
    """Runs one session from joining to its end; everything it has to say goes through `post`.

    `post` runs callbacks on the event loop. It raises LoopClosed if that is closed, also when
    there is nothing to run, and that ends the session. `joined` gets the session id or why there
    is none; `ended` is the last thing posted.
    """

    def __init__(
        self,
        path: Path,
        *,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        post: Callable[[Sequence[Callback]], None],
        joined: Callable[[int | TidelogError], None],
        ended: Callback,
    ) -> None:
        self.requests: SimpleQueue[Request] = SimpleQueue()
        self._path = path
        self._folder = path.with_name(f"{path.name}-sessions")
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._post = post
        self._joined = joined
        self._ended = ended
        self._session_id = secrets.randbits(62) + 1
        self._random = Random(self._session_id)
        self._watches: list[Watch] = []
        self._session_file: SessionFile | None = None
        self._peers: dict[int, SessionProbe] = {}
        self._closing = False
        self._is_unreadable = False
        self._looked_at_ms = 0
        self._file_read_at_ms = 0
        self._judge_leases_from_ms = 0
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_reliable(self, for_ms: int) -> bool:
        """Whether nobody may call the session dead for so long. Any thread may ask."""
        return self._session_file is not None and self._session_file.is_reliable(for_ms)

    def _run(self) -> None:
        try:
            tree, session_file = self._join()
        except (sqlite3.Error, OSError, StorageError) as error:
            failure = StorageError(f"{self._path} cannot be used for coordination: {error}")
            with suppress(LoopClosed):  # Nobody waits any more.
                self._post([partial(self._joined, failure)])
            return
        try:
            self._post([partial(self._joined, self._session_id)])
            self._serve(tree)
        except SessionLost as loss:
            logger.warning("session lost", extra={"session": self._session_id, "why": str(loss)})
        except LoopClosed:
            logger.debug("event loop closed under a session", extra={"session": self._session_id})
        finally:
            self._leave(tree, session_file)

    def _join(self) -> tuple[SqliteTree, SessionFile]:
        self._folder.mkdir(parents=True, exist_ok=True)
        tree = SqliteTree(self._path)
        try:
            self._patiently(tree.configure)
            session_file = self._patiently(lambda: self._add_session(tree))
        except BaseException:
            tree.close()
            raise
        self._session_file = session_file
        self._looked_at_ms = self._file_read_at_ms = monotonic_ms()
        self._judge_leases_from_ms = self._looked_at_ms + self._session_timeout_ms // 2
        return tree, session_file

    def _add_session(self, tree: SqliteTree) -> SessionFile:
        """Become a session, once those that died without saying so are out of the way."""
        tree.begin()
        try:
            dead = [known for known in tree.sessions() if self._is_unlocked(known)]
            for session_id in dead:
                tree.end_session(session_id)
            tree.add_session(self._session_id, process_id=os.getpid())
            session_file = SessionFile(
                self._session_path(self._session_id),
                session_timeout_ms=self._session_timeout_ms,
                heartbeat_interval_ms=self._heartbeat_interval_ms,
            )
        except BaseException:
            tree.roll_back()
            raise
        try:
            # Others make and remove session files only with the write lock, which is ours.
            self._remove_stray_files(tree)
            tree.commit()
        except BaseException:
            session_file.close()
            tree.roll_back()
            raise
        return session_file

    def _remove_stray_files(self, tree: SqliteTree) -> None:
        known = {str(session_id) for session_id in tree.sessions()}
        for path in self._folder.iterdir():
            if path.name not in known:
                path.unlink(missing_ok=True)

    def _is_unlocked(self, session_id: int) -> bool:
        probe = SessionProbe(self._session_path(session_id))
        try:
            return probe.is_unlocked()
        finally:
            probe.close()

    def _serve(self, tree: SqliteTree) -> None:
        while not self._closing:
            wrote = False
            for kind, group in groupby(self._take(), key=type):
                if kind is Write:
                    self._write(tree, [each for each in group if isinstance(each, Write)])
                    wrote = True
                    continue
                for request in group:
                    self._answer(tree, request)
            self._post([])
            self._look_around(tree, wrote=wrote)

    def _take(self) -> list[Request]:
        """What has been asked, in order; waits for the next turn if nothing was."""
        wait_ms = POLL_MS if self._peers else POLL_ALONE_MS
        requests: list[Request] = []
        with suppress(Empty):
            requests.append(self.requests.get(timeout=wait_ms / 1_000))
            while len(requests) < GROUP_MAX_REQUESTS:
                requests.append(self.requests.get_nowait())
        return requests

    def _answer(self, tree: SqliteTree, request: Request) -> None:
        match request:
            case Read(run, fail):
                self._post([self._read(tree, run, fail)])
            case Arm(watch):
                self._watches.append(watch)
                self._read_watch(tree, watch)
            case Disarm(watch):
                self._watches.remove(watch)
            case Close():
                self._closing = True
            case Write():
                raise AssertionError("writes are answered in groups")
            case _:
                assert_never(request)

    def _read(
        self,
        tree: SqliteTree,
        run: Callable[[SqliteTree], Callback],
        fail: Callable[[TidelogError], None],
    ) -> Callback:
        try:
            return self._patiently(lambda: run(tree))
        except sqlite3.Error as error:
            return partial(fail, self._unavailable(error))

    def _write(self, tree: SqliteTree, writes: Sequence[Write]) -> None:
        try:
            answers = self._patiently(lambda: self._transact(tree, writes))
        except sqlite3.Error as error:
            failure = self._unavailable(error)
            answers = [partial(write.fail, failure) for write in writes]
        self._post(answers)

    def _transact(self, tree: SqliteTree, writes: Sequence[Write]) -> list[Callback]:
        try:
            tree.begin()
            if not tree.has_session(self._session_id):
                raise SessionLost("declared dead by another session")
            answers = [self._apply(tree, write) for write in writes]
            tree.commit()
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite may have rolled back on its own.
                tree.roll_back()
            raise
        return answers

    def _apply(self, tree: SqliteTree, write: Write) -> Callback:
        try:
            return write.run(tree)
        except CoordinatorRefused as refusal:
            return partial(write.fail, refusal)

    def _look_around(self, tree: SqliteTree, *, wrote: bool) -> None:
        now_ms = monotonic_ms()
        if now_ms - self._looked_at_ms > self._session_timeout_ms // 4:
            self._judge_leases_from_ms = now_ms + self._session_timeout_ms // 2
        self._looked_at_ms = now_ms
        try:
            if not self.is_reliable(0):
                self._confirm_session(tree)
            changed = tree.changed_elsewhere()
            if changed:
                self._note_sessions(tree)
            if changed or wrote:
                self._read_changed_watches(tree)
            self._end_dead_sessions(tree, now_ms)
            self._file_read_at_ms = now_ms
            self._is_unreadable = False
        except sqlite3.Error as error:
            self._tolerate(error, now_ms)

    def _confirm_session(self, tree: SqliteTree) -> None:
        """We were stopped for longer than our lease: find out whether anybody has noticed."""
        assert self._session_file is not None
        try:
            lease_end_ms = self._session_file.renew()
        except OSError as error:
            raise SessionLost(f"the lease could not be renewed: {error}") from error
        if not self._patiently(partial(self._is_known, tree)):
            raise SessionLost("declared dead by another session")
        self._session_file.on_confirmed(lease_end_ms)

    def _is_known(self, tree: SqliteTree) -> bool:
        tree.begin()
        try:
            return tree.has_session(self._session_id)
        finally:
            tree.roll_back()

    def _note_sessions(self, tree: SqliteTree) -> None:
        sessions = set(tree.sessions())
        if self._session_id not in sessions:
            raise SessionLost("declared dead by another session")
        for gone in self._peers.keys() - sessions:
            self._peers.pop(gone).close()
        for session_id in sessions - self._peers.keys() - {self._session_id}:
            self._peers[session_id] = SessionProbe(self._session_path(session_id))

    def _read_changed_watches(self, tree: SqliteTree) -> None:
        for watch in self._watches:
            if watch.fingerprint(tree) != watch.seen:
                self._read_watch(tree, watch)

    def _read_watch(self, tree: SqliteTree, watch: Watch) -> None:
        # The fingerprint first: a change between the two is read now and offered once more,
        # in the other order it would be missed.
        try:
            watch.seen = watch.fingerprint(tree)
            self._post([watch.read(tree)])
        except sqlite3.Error:
            watch.seen = (-1, -1)  # Seen nothing: it differs from whatever is read next.
            raise

    def _end_dead_sessions(self, tree: SqliteTree, now_ms: int) -> None:
        if not any(self._is_dead(probe, now_ms) for probe in self._peers.values()):
            return
        for session_id in self._patiently(partial(self._end_all_dead, tree)):
            self._peers.pop(session_id).close()
        self._read_changed_watches(tree)

    def _is_dead(self, probe: SessionProbe, now_ms: int) -> bool:
        if probe.is_unlocked():
            return True
        return now_ms >= self._judge_leases_from_ms and probe.is_overdue(now_ms)

    def _end_all_dead(self, tree: SqliteTree) -> list[int]:
        """In one transaction: brokers that die together are seen gone together."""
        tree.begin()
        try:
            # Looked at again with the write lock: who slept may have woken while we waited for
            # that, and others may have died.
            now_ms = monotonic_ms()
            dead = [known for known, probe in self._peers.items() if self._is_dead(probe, now_ms)]
            for session_id in dead:
                tree.end_session(session_id)
            if dead:
                tree.commit()
        finally:
            tree.roll_back()
        for session_id in dead:
            logger.info("session ended for a dead process", extra={"session": session_id})
            self._session_path(session_id).unlink(missing_ok=True)
        return dead

    def _tolerate(self, error: sqlite3.Error, now_ms: int) -> None:
        """A file that cannot be read may hold our death sentence; assume so in the end (C6)."""
        if not self._is_unreadable:  # Once is enough; this is looked at many times a second.
            logger.warning(
                "coordination file unreadable", extra={"file": str(self._path), "reason": error}
            )
        self._is_unreadable = True
        unread_ms = now_ms - self._file_read_at_ms
        if unread_ms > self._session_timeout_ms:
            raise SessionLost(f"{self._path} could not be read for {unread_ms} ms: {error}")

    def _leave(self, tree: SqliteTree, session_file: SessionFile) -> None:
        """Nothing of this session is left when `ended` is posted."""
        with suppress(sqlite3.Error):  # The lock goes in any case, and with it the session.
            self._patiently(lambda: self._end_own_session(tree))
        session_file.close()
        for probe in self._peers.values():
            probe.close()
        tree.close()
        with suppress(LoopClosed):
            self._post([self._ended])

    def _end_own_session(self, tree: SqliteTree) -> None:
        tree.roll_back()
        tree.begin()
        try:
            tree.end_session(self._session_id)
            tree.commit()
        finally:
            tree.roll_back()

    def _patiently(self, action: Callable[[], Answer]) -> Answer:
        """Run `action`, again and again while another process has the file locked."""
        deadline_ms = monotonic_ms() + BUSY_WAIT_MAX_MS
        backoff_ms = BUSY_BACKOFF_MIN_MS
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or monotonic_ms() > deadline_ms:
                    raise
            time.sleep(self._random.uniform(backoff_ms / 2, backoff_ms) / 1_000)
            backoff_ms = min(backoff_ms * 2, BUSY_BACKOFF_MAX_MS)

    def _unavailable(self, error: sqlite3.Error) -> CoordinatorUnavailable:
        return CoordinatorUnavailable(f"{self._path}: {error}")

    def _session_path(self, session_id: int) -> Path:
        return self._folder / str(session_id)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    # The low byte is the kind of error; the rest says more about it, such as "while recovering".
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
