"""When a ledger's records were acknowledged, and the gaps between (B3, O6)."""

import json
from pathlib import Path

from tidelog.client.ledger import LedgerWriter
from tidelog.lab.ledger_times import Gap, LedgerTimes, bars, longest_gap, read_times


def times(*acknowledged_ms: int) -> LedgerTimes:
    return LedgerTimes(
        sent_count=len(acknowledged_ms),
        failed_count=0,
        first_sent_ms=100,
        acknowledged_ms={0: acknowledged_ms},
    )


def test_a_ledger_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    writer = LedgerWriter(path, producer="p")
    entries = writer.sent_together("t", [(b"%d" % number, number) for number in range(4)])
    writer.acknowledged(entries[0], partition=1, offset=0)
    writer.acknowledged(entries[1], partition=0, offset=0)
    writer.failed(entries[2], "_MSG_TIMED_OUT")
    writer.flush()
    with path.open("ab") as file:
        file.write(b'{"topic":"t","id":"3","part')
    read = read_times(path)
    assert (read.sent_count, read.acknowledged_count, read.failed_count) == (4, 2, 1)
    assert list(read.acknowledged_ms) == [0, 1]
    first = json.loads(path.read_text().splitlines()[0])
    assert read.first_sent_ms == first["time"]


def test_the_longest_gap_counts_from_the_first_record() -> None:
    assert longest_gap(times(300, 310, 400), 0) == Gap(0, 100, 200)
    assert longest_gap(times(110, 310, 400), 0) == Gap(0, 110, 200)


def test_a_gap_that_had_ended_before_is_not_meant() -> None:
    assert longest_gap(times(300, 310, 400), 0, since_ms=305) == Gap(0, 310, 90)
    assert longest_gap(times(300, 310, 400), 0, since_ms=401) == Gap(0, 401, 0)


def test_bars_show_how_many_there_were_and_where_was_none() -> None:
    drawn = bars([0, 1, 2, 3, 10, 30, 39, 40, 99], begin_ms=0, end_ms=40, width=4)
    assert drawn == "█▂ ▆"
    assert bars([], begin_ms=0, end_ms=40, width=4) == "    "
