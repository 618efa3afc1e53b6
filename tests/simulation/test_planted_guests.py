"""The checkers of groups and transactions can fail: bugs planted there are found.

As in `test_planted.py`, by a promise that it breaks; but a run takes longer, so there are fewer
seeds.
"""

import pytest

from tests.simulation.planted_consumer_groups import PLANTED_IN_CONSUMER_GROUPS
from tests.simulation.planted_groups import PLANTED_IN_COOPERATIVE_GROUPS, PLANTED_IN_GROUPS
from tests.simulation.planted_transactions import PLANTED_IN_TRANSACTIONS
from tests.simulation.runs import find, run_with
from tidelog.sim.guests import Guest

SEEDS_MAX = 60

OFFSETS_GO_ON = "a committed offset never goes back"
OWNED_ONCE = "a partition is one member's"
EPOCHS_GROW = "epochs only grow"
ANOTHERS = "nobody commits what is another's"
OLD_GENERATION = "nobody commits in an old generation"
GIVEN = "members are given what one leader decided"
ONE_SHARE = "a member is given one share in a generation"
REST = "everybody comes to rest"
NOBODY_ASKED = "what nobody has asked to commit is not committed"
COMMITTED = "what is committed is read"
ABORTED = "what is aborted is not read"
WHOLE = "a transaction is read whole or not at all"
WITH_RECORDS = "offsets of a transaction go with its records"
NEVER_BACK = "an offset of a transaction never goes back"

FOUND_BY: dict[str, set[str]] = {
    "answer_before_it_is_committed": {OFFSETS_GO_ON},
    "begin_before_all_is_loaded": {OFFSETS_GO_ON, OLD_GENERATION, GIVEN, OWNED_ONCE, EPOCHS_GROW},
    "go_on_after_the_lead_is_lost": {REST, OFFSETS_GO_ON},
    "take_commits_of_whoever_was_a_member": {OLD_GENERATION, ANOTHERS, OFFSETS_GO_ON},
    "keep_members_that_are_silent": {REST},
    "give_shares_to_the_wrong_members": {GIVEN, ONE_SHARE},
    "tell_leaders_what_members_said_first": {OWNED_ONCE, ANOTHERS},
    "hand_out_what_is_not_free": {OWNED_ONCE},
    "do_not_wait_until_it_is_given_back": {OWNED_ONCE, ANOTHERS},
    "take_commits_of_fenced_members": {ANOTHERS},
    "begin_without_epochs": {EPOCHS_GROW},
    "begin_without_assignments": {OWNED_ONCE},
    "keep_consumers_that_are_silent": {REST},
    "keep_the_epoch_when_somebody_goes": {REST},
    "overlook_new_topics": {REST},
    "upgrade_without_assignments": {OWNED_ONCE, ANOTHERS, OFFSETS_GO_ON},
    "read_what_is_not_decided": {ABORTED, WHOLE},
    "tell_readers_nothing_of_aborts": {ABORTED, WHOLE},
    "followers_overlook_aborts": {ABORTED, WHOLE},
    "leave_prepared_ones_alone": {REST},
    "count_offsets_before_they_are_decided": {WITH_RECORDS, NEVER_BACK},
    "let_go_of_undecided_offsets": {WITH_RECORDS, NEVER_BACK},
    "let_fenced_producers_end_transactions": {NOBODY_ASKED, COMMITTED, ABORTED, WHOLE},
    "leave_overdue_ones_open": {REST},
    "decide_late_requests": {NOBODY_ASKED, COMMITTED, ABORTED, WHOLE, WITH_RECORDS, NEVER_BACK},
}
TRIED_FIRST = {
    "do_not_wait_until_it_is_given_back": 4,
    "begin_without_assignments": 4,
    "overlook_new_topics": 10,
    "tell_leaders_what_members_said_first": 2,
    "answer_before_it_is_committed": 2,
    "go_on_after_the_lead_is_lost": 3,
    "leave_prepared_ones_alone": 9,
    "let_fenced_producers_end_transactions": 2,
    "decide_late_requests": 25,
}
"""See `find`."""

AIMED = {"decide_late_requests"}
"""Found when coordinators are aimed at, and hardly ever otherwise."""

PLANTED = {
    **{name: (bug, Guest.GROUPS) for name, bug in PLANTED_IN_GROUPS.items()},
    **{name: (bug, Guest.COOPERATIVE) for name, bug in PLANTED_IN_COOPERATIVE_GROUPS.items()},
    **{name: (bug, Guest.GROUPS) for name, bug in PLANTED_IN_CONSUMER_GROUPS.items()},
    **{name: (bug, Guest.TRANSACTIONS) for name, bug in PLANTED_IN_TRANSACTIONS.items()},
}


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_bug_is_found(name: str) -> None:
    plant, guest = PLANTED[name]
    find(
        plant,
        lambda seed: run_with(seed, guest, aims_at_coordinators=name in AIMED),
        FOUND_BY[name],
        seeds_max=SEEDS_MAX,
        tried_first=TRIED_FIRST.get(name),
    )


def test_every_bug_has_a_promise_that_it_breaks() -> None:
    assert FOUND_BY.keys() == PLANTED.keys()
