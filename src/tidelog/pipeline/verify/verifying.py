"""`verify`: a ledger against a log, down to a report (X5)."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from tidelog.base.ids import TopicPartition
from tidelog.client.record_fields import DEFAULT_ID_FIELD, RecordField
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.running import failure_of
from tidelog.pipeline.verify.columns import OFFSET_BITS, OFFSET_MAX
from tidelog.pipeline.verify.matching import Flag, match
from tidelog.pipeline.verify.report import (
    NO_PARTITION,
    Example,
    PartitionFindings,
    Problem,
    VerifyReport,
    fewest_examples,
    id_text,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

EXAMPLES: Final = 5

_PROBLEMS: Final = {
    Problem.LOST: Flag.LOST,
    Problem.ALTERED: Flag.ALTERED,
    Problem.DUPLICATED: Flag.DUPLICATED,
    Problem.REORDERED: Flag.REORDERED,
    Problem.MOVED: Flag.MOVED,
    Problem.UNEXPECTED: Flag.UNEXPECTED,
}
_UNREAD: Final = re.compile(
    r"FAILED_READ_FILE\S* Encountered error while reading file (?:file://)?(.+?)\.\s+SQLSTATE"
)
_ALL_PROBLEMS: Final = int(sum(_PROBLEMS.values()))
_OF_AN_EXAMPLE: Final = (
    "id",
    "copies",
    "offset",
    "first_place",
    "last_place",
    "first_told_place",
    "first_crc",
    "first_noted_crc",
)


def verify(
    ledger: "DataFrame",
    log: "DataFrame",
    *,
    id_field: RecordField = DEFAULT_ID_FIELD,
    log_starts: Mapping[TopicPartition, int] | None = None,
    allowed: Collection[Problem] = (),
    examples: int = EXAMPLES,
) -> VerifyReport:
    """What is wrong with `log`, judged by `ledger`.

    `ledger` is what `read_ledger` gives; `log` are rows of `format("tidelog")` with headers. Both
    are read once. Topics that are not in both are judged as well: leave them out before. What was
    acknowledged below `log_starts` may be gone. Raises OptionError for a log without headers, and
    PipelineError for a file that cannot be read.
    """
    if "headers" not in log.columns:
        raise OptionError("the log has no headers, which checksums are of: set includeHeaders")
    matched = match(ledger, log, id_field=id_field, log_starts=log_starts or {})
    has_problem = F.col("flags").bitwiseAND(F.lit(_ALL_PROBLEMS)) != 0
    order = F.when(has_problem, F.col("offset"))
    summed = matched.groupBy("topic", "partition", "flags").agg(
        F.count("*").alias("ids"),
        F.sum("copies").alias("copies"),
        F.sum("noted").alias("noted"),
        F.sum(F.col("is_acknowledged").cast("long")).alias("acknowledged"),
        F.min_by(F.struct(*_OF_AN_EXAMPLE), order, k=examples).alias("examples"),
    )
    return _report(_collected(summed), frozenset(allowed), examples)


def _collected(rows: "DataFrame") -> "list[Row]":
    """Raises PipelineError naming a file that ends too early, as a `.gz` that was cut off."""
    try:
        return rows.collect()
    except (Py4JJavaError, PySparkException) as error:
        unread = _UNREAD.search(str(error))
        if unread is None:
            raise
        raise PipelineError(f"{unread[1]} cannot be read: {failure_of(str(error))}") from error


def _report(rows: Iterable["Row"], allowed: frozenset[Problem], examples: int) -> VerifyReport:
    counts: defaultdict[TopicPartition, Counter[str]] = defaultdict(Counter)
    problems: defaultdict[TopicPartition, Counter[Problem]] = defaultdict(Counter)
    found: list[Example] = []
    unreadable = 0
    for row in rows:
        flags = Flag(row["flags"])
        if Flag.UNREADABLE in flags:
            unreadable += row["noted"]
            continue
        known = row["partition"]
        partition = TopicPartition(row["topic"], NO_PARTITION if known is None else known)
        counts[partition].update(
            stored=row["copies"],
            acknowledged=row["acknowledged"],
            unacknowledged=row["ids"] if Flag.UNACKNOWLEDGED in flags else 0,
            expired=row["ids"] if Flag.EXPIRED in flags else 0,
        )
        for problem in _problems(flags):
            problems[partition][problem] += _count(problem, row)
            found += [_example(partition, problem, each) for each in row["examples"] or ()]
    return VerifyReport(
        partitions=tuple(
            PartitionFindings(partition=each, problems=dict(problems[each]), **counts[each])
            for each in sorted(counts)
        ),
        examples=fewest_examples(found, examples),
        unreadable_lines=unreadable,
        allowed=allowed,
    )


def _problems(flags: Flag) -> list[Problem]:
    return [problem for problem, flag in _PROBLEMS.items() if flag in flags]


def _count(problem: Problem, row: "Row") -> int:
    """How many records: of an id that is there several times, all but one are duplicates."""
    match problem:
        case Problem.DUPLICATED:
            return int(row["copies"] - row["ids"])
        case Problem.UNEXPECTED:
            return int(row["copies"])
        case _:
            return int(row["ids"])


def _example(partition: TopicPartition, problem: Problem, row: "Row") -> Example:
    return Example(partition, row["offset"], id_text(row["id"]), problem, _detail(problem, row))


def _detail(problem: Problem, row: "Row") -> str:
    match problem:
        case Problem.LOST:
            return "acknowledged there, and nowhere in the log"
        case Problem.ALTERED:
            return f"its checksum is {row['first_crc']}, and {row['first_noted_crc']} was sent"
        case Problem.DUPLICATED:
            return f"there {row['copies']} times, the last at {_place(row['last_place'])}"
        case Problem.REORDERED:
            return "behind a record that its producer sent later"
        case Problem.MOVED:
            return f"was acknowledged at {_place(row['first_told_place'])}"
        case Problem.UNEXPECTED:
            return "in no line of the ledger" if row["id"] else "has no id"


def _place(place: int) -> str:
    return f"partition {place >> OFFSET_BITS}, offset {place & OFFSET_MAX}"
