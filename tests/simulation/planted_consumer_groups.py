"""Bugs of the consumer protocol to be found, planted as those of `planted.py` are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tidelog.base.errors import ErrorCode
from tidelog.core.groups import migration
from tidelog.core.groups.consumer import expressions, reconciliation
from tidelog.core.groups.consumer.group import ConsumerGroup
from tidelog.core.groups.consumer.members import ConsumerMembers
from tidelog.records.consumer_groups import (
    CurrentAssignmentRecord,
    GroupEpochRecord,
    TargetEpochRecord,
)


@contextmanager
def hand_out_what_is_not_free() -> Iterator[None]:
    """C1: a partition is given before the one who has it was asked for it."""
    with patch.object(ConsumerMembers, "owner", lambda *_: None):
        yield


@contextmanager
def do_not_wait_until_it_is_given_back() -> Iterator[None]:
    """C3: who is asked to give something back is believed to have."""
    with patch.object(reconciliation, "_has_any", lambda *_: False):
        yield


@contextmanager
def take_commits_of_fenced_members() -> Iterator[None]:
    """Whatever a member says its epoch is, and whether it is one."""
    with (
        patch.object(ConsumerGroup, "require_commit", lambda *_, **__: None),
        patch.object(ConsumerGroup, "commit_error", lambda *_: ErrorCode.NONE),
    ):
        yield


@contextmanager
def begin_without_epochs() -> Iterator[None]:
    """A new coordinator counts a group's epochs from the start."""
    replay = ConsumerGroup.replay

    def without(self: ConsumerGroup, record: Any) -> None:
        is_epoch = isinstance(record, GroupEpochRecord | TargetEpochRecord)
        if not is_epoch or record.is_tombstone:
            replay(self, record)

    with patch.object(ConsumerGroup, "replay", without):
        yield


@contextmanager
def begin_without_assignments() -> Iterator[None]:
    """A new coordinator does not know what members have."""
    replay = ConsumerGroup.replay

    def without(self: ConsumerGroup, record: Any) -> None:
        if not isinstance(record, CurrentAssignmentRecord):
            replay(self, record)

    with patch.object(ConsumerGroup, "replay", without):
        yield


@contextmanager
def keep_consumers_that_are_silent() -> Iterator[None]:
    """H3: sessions do not end."""
    with patch.object(ConsumerGroup, "on_timer", lambda *_: None):
        yield


@contextmanager
def keep_the_epoch_when_somebody_goes() -> Iterator[None]:
    """H4: what a member had that is gone is not assigned again."""
    remove = ConsumerGroup.remove

    def quietly(self: ConsumerGroup, leaving: Any) -> None:
        with patch.object(ConsumerGroup, "_bump", lambda _self: None):
            remove(self, leaving)

    with patch.object(ConsumerGroup, "remove", quietly):
        yield


@contextmanager
def overlook_new_topics() -> Iterator[None]:
    """X2: an expression stands for what it stood for when it was said first."""

    def unresolved(members: ConsumerMembers, *_: Any, **__: Any) -> frozenset[str]:
        return frozenset(members.subscriber_counts) - members.expressions.keys()

    with patch.object(expressions, "due", unresolved):
        yield


@contextmanager
def upgrade_without_assignments() -> Iterator[None]:
    """V1: members of a classic group have nothing when it changes its protocol."""

    def nothing(group: Any, _context: Any) -> Any:
        return {member.member_id: frozenset() for member in group.members}

    with patch.object(migration, "_assignments", nothing):
        yield


PLANTED_IN_CONSUMER_GROUPS: dict[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        hand_out_what_is_not_free,
        do_not_wait_until_it_is_given_back,
        take_commits_of_fenced_members,
        begin_without_epochs,
        begin_without_assignments,
        keep_consumers_that_are_silent,
        keep_the_epoch_when_somebody_goes,
        overlook_new_topics,
        upgrade_without_assignments,
    )
}
