"""What the client was told is compared with what the logs hold (B1, scenario 5)."""

from array import array
from pathlib import Path

from tidelog.bench.client_log import errors_met
from tidelog.bench.disk import judge, read_ledger, stored_numbers
from tidelog.bench.sender import FAILED, NOT_ANSWERED
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch


def test_acknowledged_records_that_are_missing_are_lost() -> None:
    verdict = judge([0, 0, 1], [[0], [1]], {})
    assert (verdict.acknowledged, verdict.lost) == (3, 1)
    assert not verdict.is_consistent


def test_failed_records_that_are_there_are_counted() -> None:
    verdict = judge([FAILED, FAILED, 0, NOT_ANSWERED], [[1], [2]], {})
    assert (verdict.failed, verdict.failed_but_stored, verdict.unanswered) == (2, 1, 1)
    assert verdict.is_consistent


def test_copies_beyond_the_first_are_duplicates() -> None:
    verdict = judge([0, 1], [[0, 0, 0], [1]], {})
    assert (verdict.stored, verdict.duplicated) == (2, 2)


def test_replicas_that_differ_are_not_consistent() -> None:
    verdict = judge([0], [[0]], {3: "broker 1: x; broker 2: y"})
    assert verdict.difference == "partition 3: broker 1: x; broker 2: y"
    assert not verdict.is_consistent


def test_numbers_are_read_from_the_folder_of_a_partition(tmp_path: Path) -> None:
    records = [Record(n, 1, None, b"%d 99 ...." % (12 * n), ()) for n in range(3)]
    (tmp_path / f"{0:020}.log").write_bytes(encode_plain_batch(records, Codec.NONE))
    assert stored_numbers(tmp_path) == [0, 12, 24]


def test_a_ledger_survives_its_file(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(array("q", [5, FAILED, NOT_ANSWERED]).tobytes())
    assert list(read_ledger(tmp_path / "ledger")) == [5, FAILED, NOT_ANSWERED]


def test_errors_that_were_retried_are_found_in_the_clients_log() -> None:
    met = "%7|1|MSGSET|x| [thrd:y]: t [6]: MessageSet with 2 message(s) (MsgId 0, BaseSeq -1) "
    lines = [
        f"{met}encountered error: Local: Broker transport failure (actions Refresh)\n",
        f"{met}encountered error: Broker: Not enough in-sync replicas (actions Retry)\n",
        f"{met}encountered error: Broker: Not enough in-sync replicas (actions Retry)\n",
        f"{met}delivered\n",
    ]
    assert errors_met(lines) == {"NETWORK_EXCEPTION": 1, "NOT_ENOUGH_REPLICAS": 2}
