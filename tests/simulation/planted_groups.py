"""Bugs of coordinators and groups to be found, planted as those of `planted.py` are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tidelog.broker import shard_loading, shard_runner
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.shard_runner import ShardRunner
from tidelog.core.groups.classic_group import ClassicGroup
from tidelog.core.groups.classic_members import ClassicMembers


@contextmanager
def answer_before_it_is_committed() -> Iterator[None]:
    """W2: a commit is acknowledged when it is in the leader's log."""
    with patch.object(ShardRunner, "_after_writes", lambda self, effect: self._do(effect)):
        yield


@contextmanager
def begin_before_all_is_loaded() -> Iterator[None]:
    """A new coordinator forgets the last record of each read."""
    read = shard_loading.read_entries

    def all_but_one(*args: Any, **kwargs: Any) -> Any:
        loaded = read(*args, **kwargs)
        return loaded._replace(entries=loaded.entries[:-1])

    with patch.object(shard_runner, "read_entries", all_but_one):
        yield


@contextmanager
def go_on_after_the_lead_is_lost() -> Iterator[None]:
    """W4: a shard that was loaded once answers for ever, whoever leads."""
    on_role = Coordinators.on_role

    def keep(self: Any, partition: Any) -> None:
        if partition.partition not in self._runners:
            on_role(self, partition)

    with (
        patch.object(Coordinators, "on_role", keep),
        patch.object(ShardRunner, "end", lambda _self: None),
        patch.object(ShardRunner, "_start_again", lambda _self: None),
    ):
        yield


@contextmanager
def take_commits_of_whoever_was_a_member() -> Iterator[None]:
    """A member that was given up, and comes back, commits in its old generation."""
    with patch.object(ClassicGroup, "require_commit", lambda *_, **__: None):
        yield


@contextmanager
def keep_members_that_are_silent() -> Iterator[None]:
    """Sessions do not end: what a dead member has stays its own."""
    with (
        patch.object(ClassicGroup, "_on_session_time_up", lambda *_: None),
        patch.object(ClassicGroup, "_on_join_time_up", lambda *_: None),
        patch.object(ClassicGroup, "_on_sync_time_up", lambda *_: None),
    ):
        yield


@contextmanager
def give_shares_to_the_wrong_members() -> Iterator[None]:
    """What the leader decided for the first goes to the last."""
    assign = ClassicGroup._assign

    def mixed_up(self: ClassicGroup, assignments: dict[str, bytes]) -> None:
        names = sorted(assignments)
        assign(self, dict(zip(names, (assignments[name] for name in reversed(names)), strict=True)))

    with patch.object(ClassicGroup, "_assign", mixed_up):
        yield


@contextmanager
def tell_leaders_what_members_said_first() -> Iterator[None]:
    """What a member owns when it joins again is not passed on."""
    with patch.object(ClassicMembers, "update_protocols", lambda *_: None):
        yield


PLANTED_IN_COOPERATIVE_GROUPS: dict[str, Callable[[], Any]] = {
    one.__name__: one for one in (tell_leaders_what_members_said_first,)
}
PLANTED_IN_GROUPS: dict[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        answer_before_it_is_committed,
        begin_before_all_is_loaded,
        go_on_after_the_lead_is_lost,
        take_commits_of_whoever_was_a_member,
        keep_members_that_are_silent,
        give_shares_to_the_wrong_members,
    )
}
