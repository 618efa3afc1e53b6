"""Reports in HTML need no other file, and show what was found as text."""

from pathlib import Path

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.verify.html import replicas_html, verify_html
from tidelog.pipeline.verify.replica_ranges import Difference, FoundPlace, MissingRange
from tidelog.pipeline.verify.replicas import PartitionComparison, ReplicasReport, ReplicaState
from tidelog.pipeline.verify.report import Example, PartitionFindings, Problem, VerifyReport

PARTITION = TopicPartition("orders", 3)


def _report(lost: int) -> VerifyReport:
    findings = PartitionFindings(
        partition=PARTITION,
        stored=10,
        acknowledged=12,
        unacknowledged=0,
        expired=0,
        problems={Problem.LOST: lost},
    )
    examples = (Example(PARTITION, 7, "<script>", Problem.LOST, "nowhere"),) if lost else ()
    return VerifyReport(
        partitions=(findings,), examples=examples, unreadable_lines=0, allowed=frozenset()
    )


def test_page_needs_nothing_else() -> None:
    page = verify_html(_report(lost=2), about={"ledger": "a&b"})
    assert page.startswith("<!doctype html>")
    assert not [word for word in ("http:", "https:", "src=", "url(", "<link") if word in page]


def test_ids_of_others_are_no_markup() -> None:
    page = verify_html(_report(lost=2), about={"ledger": "a&b"})
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a&amp;b" in page


def test_verdict_is_told_first() -> None:
    assert ">Not clean<" in verify_html(_report(lost=2), about={})
    assert ">Clean<" in verify_html(_report(lost=0), about={})


def test_replicas_are_shown_with_where_they_part() -> None:
    folder = Path("/data/broker-2/orders-3")
    state = ReplicaState(
        folder=folder,
        start_offset=0,
        end_offset=90,
        high_watermark=100,
        behind=10,
        excess_bytes=7,
    )
    comparison = PartitionComparison(
        partition=PARTITION,
        replicas=(state, state),
        start_offset=0,
        end_offset=100,
        compared_bytes=5_000,
        differing_batches=1,
        missing_offsets=3,
        first_difference=Difference(42, (FoundPlace(folder, None, 0, "nothing up to its end"),)),
        missing=(MissingRange(folder, 42, 45),),
    )
    report = ReplicasReport(partitions=(comparison,), alone=(), is_behind_allowed=False)
    page = replicas_html(report, about={})
    assert ">Not equal<" in page
    assert "orders-3 differs from offset 42 on" in page
    assert "nothing up to its end" in page
    assert "what is missing" in page
    assert "who is behind" in page
