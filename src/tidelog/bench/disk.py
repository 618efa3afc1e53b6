"""What reached the disk: the logs of the leaders, read from their folders, against a ledger."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog.bench.measured import DiskVerdict
from tidelog.bench.sender import FAILED, NOT_ANSWERED
from tidelog.lab.replica_files import stored_batches
from tidelog.records.record import decode_records


def read_ledger(path: Path) -> Sequence[int]:
    """By number of the record: the offset it was acknowledged at, FAILED or NOT_ANSWERED."""
    offsets: array[int] = array("q")
    offsets.frombytes(path.read_bytes())
    return offsets


def stored_numbers(folder: Path) -> list[int]:
    """The numbers of the records in the folder of a partition, in their order."""
    return [
        int((record.value or b"").split(b" ", 1)[0])
        for batch in stored_batches(folder)
        if not batch.header.is_control
        for record in decode_records(batch.data)
    ]


def judge(
    ledger: Sequence[int], stored: Iterable[Sequence[int]], differences: Mapping[int, str]
) -> DiskVerdict:
    """`stored`: numbers in each partition's log; `differences`: by partition whose replicas do."""
    copies: Counter[int] = Counter()
    for numbers in stored:
        copies.update(numbers)
    acknowledged = [number for number, offset in enumerate(ledger) if offset >= 0]
    failed = [number for number, offset in enumerate(ledger) if offset == FAILED]
    return DiskVerdict(
        sent=len(ledger),
        acknowledged=len(acknowledged),
        failed=len(failed),
        unanswered=sum(offset == NOT_ANSWERED for offset in ledger),
        stored=len(copies),
        lost=sum(number not in copies for number in acknowledged),
        failed_but_stored=sum(number in copies for number in failed),
        duplicated=copies.total() - len(copies),
        difference=_first(differences),
    )


def _first(differences: Mapping[int, str]) -> str | None:
    for partition, what in differences.items():
        return f"partition {partition}: {what}"
    return None
