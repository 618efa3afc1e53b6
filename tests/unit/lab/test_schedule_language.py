"""Sentences that people write about faults (B3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.lab.fault_kinds import BrokerNumber, Deed, Others, Role
from tidelog.lab.schedule_language import Sentence, parse_schedule


def one(text: str) -> Sentence:
    (sentence,) = parse_schedule(text)
    return sentence


def test_a_deed_again_and_again() -> None:
    sentence = one("kill leader every 10s for 2m")
    assert (sentence.deed, sentence.victim) == (Deed.KILL, Role.LEADER)
    assert (sentence.first_at_s, sentence.every_s, sentence.times) == (10, 10, 12)
    assert sentence.away_s is None


def test_for_before_every_is_how_long_it_is_away() -> None:
    sentence = one("pause follower for 500ms every 20s 3 times")
    assert sentence.away_s == 0.5
    assert (sentence.every_s, sentence.times) == (20, 3)


def test_once_at_a_time() -> None:
    sentence = one("at 1.5m kill all for 2s")
    assert (sentence.first_at_s, sentence.every_s, sentence.times) == (90, 0, 1)
    assert sentence.victim is Role.ALL


def test_once_at_the_beginning() -> None:
    assert one("expire controller").first_at_s == 0


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("cut leader for 5s", Others.EVERYBODY),
        ("cut leader from others for 5s", Others.BROKERS),
        ("cut leader from clients for 5s", Others.CLIENTS),
        ("cut controller from zookeeper for 5s", Others.ZOOKEEPER),
    ],
)
def test_a_broker_is_cut_off_from_some(text: str, others: Others) -> None:
    assert one(text).others is others


def test_a_slow_way_says_how_slow() -> None:
    sentence = one("SLOW broker 2 from clients by 200ms for 1m")
    assert sentence.victim == BrokerNumber(2)
    assert (sentence.delay_s, sentence.away_s) == (0.2, 60)


@pytest.mark.parametrize("role", ["group coordinator", "transaction coordinator"])
def test_roles_of_two_words(role: str) -> None:
    assert one(f"kill {role} every 5s 2 times").victim is Role(role)


def test_the_seed_decides() -> None:
    sentence = one("random every 2s 100 times")
    assert (sentence.deed, sentence.victim, sentence.times) == (None, None, 100)


def test_lines_and_remarks() -> None:
    text = """
    # two at once
    kill leader every 10s for 1m   # six of them
    slow all by 5ms for 1m
    """
    assert [each.deed for each in parse_schedule(text)] == [Deed.KILL, Deed.SLOW]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("# nothing", "is empty"),
        ("kick leader", "'kick' is no deed; they are kill, pause"),
        ("kill", "a victim is missing"),
        ("kill lieder", "'lieder' is no victim; they are leader, follower"),
        ("kill broker two", "'two' is no number"),
        ("kill group leader", "'leader' stands where 'coordinator' should"),
        ("kill leader from clients", "goes with cut and slow"),
        ("cut leader from mars", "not 'mars'"),
        ("slow leader for 5s", "say how slow"),
        ("kill leader by 5s", "say how slow"),
        ("expire leader for 5s every 10s 2 times", "does not last"),
        ("kill leader every 10s", "'times'"),
        ("kill leader every 10s for", "a time is missing"),
        ("kill leader every soon for 2m", "'soon' is no time"),
        ("kill leader every 0s for 2m", "has no end"),
        ("kill leader every 10s for 1s", "0 times"),
        ("kill leader every 1ms for 24h", "times, not 1 to"),
        ("kill leader for 99h", "longer than a day"),
        ("kill leader every 10s 5 time", "'time' stands where 'times' should"),
        ("kill leader tomorrow", "'tomorrow' is too much"),
        ("tear zookeeper leader", "is for brokers"),
        ("pause leader for 1s\nkill nobody", "line 2 of the schedule, 'kill nobody'"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_schedule(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    st.lists(
        st.sampled_from(
            [
                "kill",
                "leader",
                "every",
                "10s",
                "for",
                "at",
                "by",
                "3",
                "times",
                "broker",
                "cut",
                "from",
                "clients",
                "random",
                "#",
            ]
        )
    )
)
def test_any_words_are_a_schedule_or_a_config_error(words: list[str]) -> None:
    try:
        sentences = parse_schedule(" ".join(words))
    except ConfigError:
        return
    assert all(sentence.times >= 1 for sentence in sentences)
