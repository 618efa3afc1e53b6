"""The report of a run says what its outcome says, and needs no other file."""

import re
from html.parser import HTMLParser

import pytest

from tidelog.client.values import PartitionDescription
from tidelog.lab.fault_kinds import Deed, Others, Role
from tidelog.lab.fault_schedule import Fault
from tidelog.lab.faults import Outcome
from tidelog.lab.injector import BegunFault
from tidelog.lab.observations import Moment
from tidelog.lab.report import FAULTS_OPEN_MAX, About, gap_text, report_html, verdict_words
from tidelog.lab.timeline_lanes import picture_of, rates_of
from tidelog.lab.timeline_picture import Lane, Span
from tidelog.lab.verdict import PartitionVerdict
from tidelog.lab.workload import Gap

ZERO = 100.0
ABOUT = About(
    title="Faults: <all>",
    date="2026-11-18",
    command="tidelog lab run 'kill leader' --seed 7",
    seed=7,
    schedule="kill leader for 2s",
    setting={"brokers": "3 of tidelog"},
    machine={"python": "3.11"},
)


def moment(
    at_s: float,
    leader: int | None,
    isr: tuple[int, ...],
    *,
    alive: tuple[int, ...] = (1, 2, 3),
    acknowledged: int = 0,
) -> Moment:
    described = PartitionDescription(partition=0, leader=leader, replicas=(1, 2, 3), isr=isr)
    return Moment(ZERO + at_s, (1, 2, 3), frozenset(alive), 3, (described,), acknowledged)


def begun(number: int, at_s: float, *names: str, deed: Deed = Deed.KILL) -> BegunFault:
    fault = Fault(
        number=number,
        deed=deed,
        victim=Role.LEADER,
        partition=0,
        others=Others.CLIENTS,
        delay_s=0.1,
        away_s=2.0,
        chosen=0,
    )
    return BegunFault(fault, names, ZERO + at_s, lambda: None, ended_at=ZERO + at_s + 2)


def verdict(*, lost: int = 0, difference: str | None = None) -> PartitionVerdict:
    return PartitionVerdict(
        partition=0,
        stored=10,
        acknowledged=10,
        lost=lost,
        duplicated=0,
        reordered=0,
        unexpected=0,
        undone=0,
        difference=difference,
        examples=("record 3 was acknowledged at offset 3",) if lost else (),
    )


def outcome(*faults: BegunFault, of: PartitionVerdict) -> Outcome:
    return Outcome(
        engine="tidelog",
        injected=list(faults),
        verdicts=[of],
        gaps=[Gap(0, ZERO + 2.0, ZERO + 3.5)],
        moments=[
            moment(0.0, 1, (1, 2, 3)),
            moment(1.0, 1, (1, 2, 3), acknowledged=50),
            moment(2.0, None, (1,), alive=(2, 3), acknowledged=100),
            moment(3.0, 2, (2, 3), alive=(2, 3), acknowledged=100),
            moment(4.0, 2, (2, 3, 1), acknowledged=200),
        ],
        sent=10,
        loaded_at=ZERO,
    )


GOOD = outcome(begun(1, 2.0, "broker 1"), of=verdict())


def lane(name: str) -> Lane:
    lanes = [lane for group in picture_of(GOOD).groups for lane in group]
    return next(each for each in lanes if each.name == name)


def shown(spans: list[Span]) -> list[tuple[str, float, float]]:
    return [(each.kind, round(each.start_s, 3), round(each.end_s, 3)) for each in spans]


def test_broker_is_up_but_for_its_faults() -> None:
    assert shown(list(lane("broker 1").spans)) == [
        ("up", 0, 2),
        ("down", 2, 4),
        ("up", 4, 4.2),
        ("down", 2, 4),
    ]
    assert shown(list(lane("broker 3").below)) == [("controller", 0, 4.2)]


def test_partition_shows_who_leads_it_and_who_is_missing() -> None:
    partition = lane("partition 0")
    assert shown(list(partition.spans)) == [
        ("l1", 0, 2),
        ("offline", 2, 3),
        ("l2", 3, 4),
        ("l2", 4, 4.2),
    ]
    assert [each.label for each in partition.spans] == ["1", "offline", "2", ""]
    assert shown(list(partition.below)) == [("alone", 2, 3), ("lacking", 3, 4)]
    assert shown(list(partition.above)) == [("none", 2, 3.5)]
    assert "in sync 2,3" in partition.spans[2].title


def test_servers_of_zookeeper_have_a_lane_when_they_are_hit() -> None:
    hit = outcome(begun(1, 1.0, "server 2"), of=verdict())
    assert "server 2" in [each.name for group in picture_of(hit).groups for each in group]


def test_fault_that_was_never_undone_lasts_to_the_end() -> None:
    fault = begun(1, 1.0, "broker 2", deed=Deed.PAUSE)
    fault.ended_at = None
    lanes = picture_of(outcome(fault, of=verdict())).groups[0]
    assert shown(list(lanes[1].spans))[-1] == ("pause", 1, 4.2)


def test_rates_are_what_was_acknowledged_between_two_looks() -> None:
    rates = rates_of(GOOD.moments, zero=ZERO)
    assert [round(each.per_s) for each in rates] == [50, 50, 50, 50, 0, 0, 100, 100]
    assert rates_of(GOOD.moments[:1], zero=ZERO) == []


def test_report_needs_nothing_else() -> None:
    text = report_html(GOOD, ABOUT)
    assert not re.search(r"(src|href)=|url\(|@import|<script", text)


class Balance(HTMLParser):
    """Complains of what is closed in another order than it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, _attributes: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """It is closed already."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_report_is_well_formed() -> None:
    parser = Balance()
    parser.feed(report_html(GOOD, ABOUT))
    assert parser.open == []


def test_report_says_the_verdict_the_faults_and_how_to_repeat_it() -> None:
    text = report_html(GOOD, ABOUT)
    assert "All is well" in text
    assert "Faults: &lt;all&gt;" in text
    assert "kill leader of partition 0" in text
    assert "--seed 7" in text
    assert "What is wrong" not in text


def test_report_of_a_loss_shows_which_records() -> None:
    text = report_html(outcome(of=verdict(lost=3)), ABOUT)
    assert "Something went wrong" in text
    assert "record 3 was acknowledged at offset 3" in text


def test_long_lists_of_faults_are_folded_up() -> None:
    faults = [begun(number, float(number), "broker 1") for number in range(FAULTS_OPEN_MAX + 1)]
    assert "<details>" in report_html(outcome(*faults, of=verdict()), ABOUT)
    assert "<details>" not in report_html(GOOD, ABOUT)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (GOOD, "Nothing was lost"),
        (outcome(of=verdict(lost=3)), "3 lost"),
        (outcome(of=verdict(difference="offset 3")), "the replicas of 1 partitions differ"),
        (Outcome(), "no verdict"),
        (Outcome(problems=["x"]), "not everything"),
    ],
)
def test_verdict_is_a_sentence(run: Outcome, words: str) -> None:
    assert words in verdict_words(run)


@pytest.mark.parametrize(("seconds", "text"), [(0, "none"), (0.25, "250 ms"), (12.34, "12.3 s")])
def test_gaps_are_short(seconds: float, text: str) -> None:
    assert gap_text(seconds) == text
