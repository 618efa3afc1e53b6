"""Who has what in a group, as its checker sees it (P15, P16): leases, and whose word counts."""

import pytest

from tidelog.base.ids import TopicPartition
from tidelog.sim.checkers.groups import GroupsChecker
from tidelog.sim.group_ledger import Asked, Commit, GroupLedger
from tidelog.sim.observation import PromiseBroken

GROUP = "group"
PARTITION = TopicPartition("records", 0)
LEASE_S = 2.0


class Judge:
    def fail(self, promise: str, detail: str) -> PromiseBroken:
        return PromiseBroken(f"{promise}: {detail}")


def check(ledger: GroupLedger) -> None:
    GroupsChecker(Judge(), ledger, classic_groups=(), consumer_groups={GROUP}).at_end()


def told(ledger: GroupLedger, member: str, at_s: float, *, is_of_coordinator: bool = True) -> None:
    """It asked just before, and has the partition now."""
    asked = Asked(at_s - 0.1, is_of_coordinator)
    ledger.hold(GROUP, member, {PARTITION}, asked, at_s)
    ledger.renew(GROUP, member, asked, LEASE_S)


def committed(ledger: GroupLedger, member: str, at_s: float) -> None:
    ledger.commits.append(Commit(GROUP, 1, member, PARTITION, 7, at_s, at_s + 0.1))


def test_two_members_do_not_hold_a_partition_while_both_have_a_lease() -> None:
    ledger = GroupLedger()
    told(ledger, "ann", 10.0)
    told(ledger, "bob", 11.0)
    with pytest.raises(PromiseBroken, match="a partition is one member's"):
        check(ledger)


def test_one_that_was_not_heard_for_longer_than_its_lease_may_believe_what_it_likes() -> None:
    ledger = GroupLedger()
    told(ledger, "ann", 10.0)
    told(ledger, "bob", 12.0)
    check(ledger)


def test_what_was_given_up_may_be_another_s_at_once() -> None:
    ledger = GroupLedger()
    told(ledger, "ann", 10.0)
    ledger.let_go(GROUP, "ann", None, 10.5)
    told(ledger, "bob", 10.6)
    check(ledger)


def test_nobody_commits_what_another_was_told_to_have_since() -> None:
    ledger = GroupLedger()
    told(ledger, "ann", 10.0)
    told(ledger, "bob", 15.0)
    committed(ledger, "ann", 16.0)
    with pytest.raises(PromiseBroken, match="nobody commits what is another's"):
        check(ledger)


def test_the_word_of_a_broker_that_was_not_yet_the_coordinator_counts_for_the_member() -> None:
    ledger = GroupLedger()
    told(ledger, "bob", 10.0)
    told(ledger, "ann", 15.0, is_of_coordinator=False)
    committed(ledger, "ann", 16.0)
    check(ledger)


def test_the_word_of_a_deposed_coordinator_does_not_count_against_others() -> None:
    ledger = GroupLedger()
    told(ledger, "ann", 10.0)
    told(ledger, "bob", 15.0, is_of_coordinator=False)
    committed(ledger, "ann", 16.0)
    check(ledger)
