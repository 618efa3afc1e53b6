"""Which of several requests may be the last to be done: what was overtaken for certain is not."""

from pathlib import Path

from tidelog.sim.log_dir_ledger import Claim

HERE, THERE = Path("/data"), Path("/data-1")


def answered(sent_s: float, settled_s: float, *, life: int = 1) -> Claim:
    return Claim(HERE, sent_s, life, settled_s=settled_s)


def unanswered(sent_s: float, settled_s: float, *, last_life: int) -> Claim:
    return Claim(HERE, sent_s, 1, settled_s=settled_s, last_life=last_life)


LATER = Claim(THERE, 10.0, 2, settled_s=11.0)


def test_what_was_answered_before_another_was_sent_is_over() -> None:
    assert not answered(1.0, 9.9).may_follow(LATER)


def test_what_was_answered_after_another_was_sent_may_have_been_done_after_it() -> None:
    assert answered(1.0, 10.1).may_follow(LATER)
    assert Claim(HERE, 12.0, 2).may_follow(LATER)


def test_what_was_not_answered_may_be_done_as_long_as_its_broker_lives() -> None:
    assert unanswered(1.0, 5.0, last_life=2).may_follow(LATER)
    assert not unanswered(1.0, 5.0, last_life=1).may_follow(LATER)
