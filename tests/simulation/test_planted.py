"""The checkers can fail: every bug of `planted.py` is found within 300 seeds.

Those seeds find nothing wrong with the code as it is (`test_seeds.py`), so it is the bug that they
find; and it is found by a promise that it breaks, not because it makes a broker crash.
"""

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.runs import find, run

SEEDS_MAX = 300

COMMITTED_STAYS = "what is committed never changes"
ISR_HOLDS = "every member of the isr holds what is committed"
LEADER_HOLDS = "who leads has everything that is committed"
ACKNOWLEDGED = "what is acknowledged is committed"
CONSUMED = "what is consumed is committed"
ONE_LEADER = "one leader per epoch"
STORED_LEADER = "who leads is who is stored as the leader"
STORED_EPOCH = "nobody leads in an epoch that is not stored"
HAS_SESSION = "a broker without a session leads nothing"
ONCE_IN_ORDER = "an idempotent producer's records are there once, in order"
HW_WITHIN_LOG = "a high watermark is never above the end of its log"

FOUND_BY: dict[str, set[str]] = {
    "truncate_to_high_watermark": {ISR_HOLDS, COMMITTED_STAYS, LEADER_HOLDS},
    "acknowledge_before_the_followers_have_it": {ACKNOWLEDGED},
    "expand_the_isr_too_early": {ISR_HOLDS, LEADER_HOLDS, COMMITTED_STAYS},
    "high_watermark_from_the_smaller_set": {ISR_HOLDS, LEADER_HOLDS, COMMITTED_STAYS},
    "forget_to_fence_an_old_leader": {ACKNOWLEDGED, ISR_HOLDS, LEADER_HOLDS, COMMITTED_STAYS},
    "forget_to_fence_an_old_controller": {
        ONE_LEADER,
        STORED_LEADER,
        STORED_EPOCH,
        HAS_SESSION,
        ISR_HOLDS,
        LEADER_HOLDS,
        COMMITTED_STAYS,
    },
    "serve_consumers_above_the_high_watermark": {CONSUMED},
    "serve_consumers_of_a_follower_above_its_high_watermark": {CONSUMED},
    "elect_outside_the_isr": {LEADER_HOLDS, COMMITTED_STAYS},
    "drop_the_epoch_checkpoint": {COMMITTED_STAYS, ISR_HOLDS, LEADER_HOLDS},
    "ignore_session_loss": {HAS_SESSION},
    "keep_a_broker_in_the_isr_after_a_power_cut": {ISR_HOLDS, LEADER_HOLDS, COMMITTED_STAYS},
    "take_everything_for_committed_at_election": {ISR_HOLDS, COMMITTED_STAYS, LEADER_HOLDS},
    "lead_on_in_the_old_epoch": {ONE_LEADER, STORED_LEADER},
    "overlook_diverged_logs": {COMMITTED_STAYS, ISR_HOLDS},
    "a_follower_claims_what_it_has_not_written": {ISR_HOLDS},
    "followers_forget_producers": {ONCE_IN_ORDER},
}


TRIED_FIRST = {"elect_outside_the_isr": 9, "forget_to_fence_an_old_leader": 71}
"""The first of the 300 seeds that find these: see `find`."""


def test_every_bug_has_a_promise_that_it_breaks() -> None:
    assert FOUND_BY.keys() == PLANTED.keys()
    assert len(PLANTED) >= 12


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    find(
        PLANTED[name],
        run,
        FOUND_BY[name],
        seeds_max=SEEDS_MAX,
        tried_first=TRIED_FIRST.get(name),
    )
