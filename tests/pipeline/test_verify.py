"""X5: `verify` finds one wrong record among very many, and says of clean data that it is clean."""

import gzip
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812

from tests.support.command_line import objects, tidelog
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tests.support.spark_job import CONF, CORE_COUNT
from tidelog.base.ids import TopicPartition
from tidelog.cli import app
from tidelog.client.ledger import record_checksum
from tidelog.client.record_fields import DEFAULT_ID_FIELD
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.rows import ddl
from tidelog.pipeline.segments import choose_replicas, find_partitions
from tidelog.pipeline.verify import Problem, VerifyReport, compare_replicas, read_ledger, verify
from tidelog.pipeline.verify.columns import checksum_column
from tidelog.pipeline.verify.log_source import folders_log, topics_log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RECORDS = 1_000_000
PARTITIONS = 4
EACH = RECORDS // PARTITIONS


@pytest.fixture(scope="module", autouse=True)
def compiled_queries(spark: "SparkSession") -> Iterator[None]:
    """A million rows are worth it (`tests/support/spark_job.py`)."""
    settings = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)


@pytest.fixture(scope="module")
def log(spark: "SparkSession") -> "DataFrame":
    """A topic of a million records, without a broker."""
    number = F.col("id")
    name = F.concat(F.lit("c0de-"), number.cast("string")).cast("binary")
    header = F.struct(F.lit(DEFAULT_ID_FIELD.name).alias("key"), name.alias("value"))
    return spark.range(RECORDS).select(
        F.lit(None).cast("binary").alias("key"),
        F.concat(F.lit("value "), number.cast("string")).cast("binary").alias("value"),
        F.lit("orders").alias("topic"),
        (number % PARTITIONS).cast("int").alias("partition"),
        F.floor(number / PARTITIONS).alias("offset"),
        F.array(header).alias("headers"),
    )


@pytest.fixture(scope="module")
def ledger(log: "DataFrame", tmp_path_factory: pytest.TempPathFactory) -> "DataFrame":
    """What one producer was told of it, in a file."""
    path = str(tmp_path_factory.mktemp("ledger") / "all")
    log.select(
        "topic",
        F.col("headers")[0]["value"].cast("string").alias("id"),
        "partition",
        "offset",
        checksum_column().alias("crc32"),
        F.lit("c0de").alias("producer"),
        (F.col("offset") * PARTITIONS + F.col("partition")).alias("number"),
    ).write.json(path)
    return read_ledger(log.sparkSession, [path])


@pytest.fixture(scope="module")
def planted(ledger: "DataFrame", log: "DataFrame") -> VerifyReport:
    """On the same with one mistake of each kind, in places far from each other."""
    swapped = F.when(_is_at(3, 1_000), 1_001).when(_is_at(3, 1_001), 1_000).cast("long")
    altered = F.when(_is_at(1, 4_321), F.lit(b"value 0"))
    wrong = (
        log.where(~_is_at(2, 77_777))
        .withColumn("value", F.coalesce(altered, "value"))
        .withColumn("offset", F.coalesce(swapped, "offset"))
    )
    copy = log.where(_is_at(0, 5)).withColumn("offset", F.lit(EACH).cast("long"))
    nobody = F.lit(None).cast(log.schema["headers"].dataType)
    nameless = copy.withColumns({"offset": F.col("offset") + 1, "headers": nobody})
    return verify(ledger, wrong.unionByName(copy).unionByName(nameless))


def _is_at(partition: int, offset: int) -> "Column":
    return (F.col("partition") == partition) & (F.col("offset") == offset)


def _found(report: VerifyReport) -> dict[Problem, int]:
    return {problem: count for problem, count in report.counts.items() if count}


def _places(report: VerifyReport, problem: Problem) -> list[tuple[int, int, str]]:
    return [
        (each.partition.partition, each.offset, each.id) for each in report.examples_of(problem)
    ]


def test_a_hundred_thousand_records_are_clean_with_nothing_planted(
    ledger: "DataFrame", log: "DataFrame"
) -> None:
    """A part of the million that are judged once, with what was planted in them."""
    is_judged = F.col("offset") < EACH // 10
    report = verify(ledger.where(is_judged), log.where(is_judged))
    assert report.is_clean
    assert (report.stored, report.acknowledged) == (RECORDS // 10, RECORDS // 10)
    assert [each.stored for each in report.partitions] == [EACH // 10] * PARTITIONS
    assert report.examples == ()


def test_a_million_records_with_any_mistake_are_not_clean(planted: VerifyReport) -> None:
    assert not planted.is_clean
    assert (planted.stored, planted.acknowledged) == (RECORDS + 1, RECORDS)
    assert _found(planted) == {
        **dict.fromkeys(Problem, 1),
        Problem.MOVED: 2,
    }


def test_one_lost_record_in_a_million_is_found(planted: VerifyReport) -> None:
    record_id = f"c0de-{77_777 * PARTITIONS + 2}"
    assert _places(planted, Problem.LOST) == [(2, 77_777, record_id)]


def test_one_altered_record_in_a_million_is_found(planted: VerifyReport) -> None:
    record_id = f"c0de-{4_321 * PARTITIONS + 1}"
    assert _places(planted, Problem.ALTERED) == [(1, 4_321, record_id)]


def test_one_copy_in_a_million_records_is_found(planted: VerifyReport) -> None:
    (example,) = planted.examples_of(Problem.DUPLICATED)
    assert (example.partition.partition, example.offset) == (0, 5)
    assert f"offset {EACH}" in example.detail


def test_two_records_in_a_million_that_changed_places_are_found(planted: VerifyReport) -> None:
    first, second = (f"c0de-{offset * PARTITIONS + 3}" for offset in (1_000, 1_001))
    assert _places(planted, Problem.REORDERED) == [(3, 1_001, first)]
    assert _places(planted, Problem.MOVED) == [(3, 1_000, second), (3, 1_001, first)]


def test_one_record_of_nobody_in_a_million_is_found(planted: VerifyReport) -> None:
    assert _places(planted, Problem.UNEXPECTED) == [(0, EACH + 1, "")]


# -- small ones ------------------------------------------------------------------------------------


class Small:
    """A ledger of some lines and a topic of some records."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.lines: list[str] = []
        self.rows: list[tuple[object, ...]] = []

    def line(self, **fields: object) -> None:
        self.lines.append(json.dumps({"topic": "orders", **fields}))

    def record(self, record_id: str, offset: int, *, partition: int = 0, value: str = "v") -> int:
        """Store it; its checksum."""
        headers = [(DEFAULT_ID_FIELD.name, record_id.encode())]
        data = value.encode()
        self.rows.append((None, data, "orders", partition, offset, None, 0, headers))
        return record_checksum(key=None, value=data, headers=headers)

    def verify(
        self,
        *,
        log_starts: Mapping[TopicPartition, int] | None = None,
        allowed: tuple[Problem, ...] = (),
    ) -> VerifyReport:
        (self._folder / "ledger.jsonl").write_text("\n".join(self.lines), "utf-8")
        ledger = read_ledger(self._spark, [str(self._folder)])
        log = self._spark.createDataFrame(self.rows, ddl(has_headers=True))
        return verify(ledger, log, log_starts=log_starts, allowed=allowed)


@pytest.fixture
def small(spark: "SparkSession", tmp_path: Path) -> Small:
    return Small(spark, tmp_path)


def test_what_was_not_acknowledged_may_be_there_or_not(small: Small) -> None:
    small.line(id="failed", error="_MSG_TIMED_OUT")
    small.line(id="failed-and-gone", error="_MSG_TIMED_OUT")
    small.line(id="unheard-of", crc32=small.record("unheard-of", 1))
    small.record("failed", 0)
    report = small.verify()
    assert report.is_clean
    assert (report.stored, report.acknowledged, report.unacknowledged) == (2, 0, 3)


def test_ledger_of_something_else_has_heard_of_nothing(small: Small) -> None:
    small.lines.append("this is no ledger")
    small.record("a", 0)
    report = small.verify()
    assert (report.noted, report.unreadable_lines) == (0, 1)


def test_lines_about_one_record_are_taken_together(small: Small) -> None:
    small.line(id="a", crc32=small.record("a", 7), producer="p", number=0)
    small.line(id="a", partition=0, offset=7)
    report = small.verify()
    assert (report.is_clean, report.acknowledged, report.unacknowledged) == (True, 1, 0)


def test_half_a_line_is_counted_and_harmless(small: Small) -> None:
    small.line(id="a", partition=0, offset=0, crc32=small.record("a", 0))
    small.lines += ['{"topic":"orders","id":"b","par', "", '{"topic":"orders"}']
    report = small.verify()
    assert report.is_clean
    assert report.unreadable_lines == 2


def test_record_below_the_start_of_the_log_has_expired(small: Small) -> None:
    small.line(id="old", partition=0, offset=4)
    small.line(id="gone", partition=0, offset=6)
    report = small.verify(log_starts={TopicPartition("orders", 0): 5})
    assert report.expired == 1
    assert [each.id for each in report.examples_of(Problem.LOST)] == ["gone"]


def test_record_at_another_offset_than_was_told_has_moved(small: Small) -> None:
    small.line(id="a", partition=0, offset=3, crc32=small.record("a", 4))
    report = small.verify()
    assert _found(report) == {Problem.MOVED: 1}
    assert small.verify(allowed=(Problem.MOVED,)).is_clean


def test_id_that_was_sent_twice_and_stored_once_is_clean(small: Small) -> None:
    """As with `tidelog.dedup.header`: the second is told the place of the first (D5)."""
    crc32 = small.record("a", 0, value="first")
    for number in range(2):
        small.line(id="a", crc32=crc32 + number, producer="p", number=number)
        small.line(id="a", partition=0, offset=0)
    assert small.verify().is_clean


def test_order_is_judged_for_each_producer_alone(small: Small) -> None:
    for offset, (producer, number) in enumerate([("p", 0), ("q", 5), ("p", 1), ("q", 4)]):
        record_id = f"{producer}-{number}"
        crc32 = small.record(record_id, offset)
        small.line(
            id=record_id, partition=0, offset=offset, crc32=crc32, producer=producer, number=number
        )
    report = small.verify()
    assert _found(report) == {Problem.REORDERED: 1}
    assert [each.id for each in report.examples] == ["q-4"]


def test_copy_in_another_partition_is_a_duplicate(small: Small) -> None:
    small.line(id="a", partition=0, offset=0, crc32=small.record("a", 0))
    small.record("a", 9, partition=1)
    report = small.verify()
    assert _found(report) == {Problem.DUPLICATED: 1}
    assert "partition 1, offset 9" in report.examples[0].detail


def test_log_without_headers_is_refused(spark: "SparkSession") -> None:
    log = spark.createDataFrame([], ddl(has_headers=False))
    with pytest.raises(OptionError, match="includeHeaders"):
        verify(spark.createDataFrame([], "topic STRING"), log)


def test_ledger_that_is_not_there_is_named(spark: "SparkSession") -> None:
    with pytest.raises(OptionError, match="/no/such/ledger does not exist"):
        read_ledger(spark, ["/no/such/ledger"])


def _line(record_id: str) -> bytes:
    return json.dumps({"topic": "orders", "id": record_id}).encode()


def test_lines_are_found_wherever_they_are_and_no_half_of_one_is_silent(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """In a folder whose name is a pattern to Spark, beside one that the pattern fits."""
    folder = tmp_path / "host [a]"
    files = {
        folder / "windows.jsonl": b"\xef\xbb\xbf"
        + _line("bom")
        + b"\r\n"
        + _line("crlf")
        + b"\r\n",
        folder / "glued.jsonl": _line("first") + _line("unheard") + b"\n" + _line("a}{b"),
        folder / "torn.jsonl": _line("whole") + b"\n" + bytes(100) + b"\n" + _line("half")[:-3],
        folder / "garbage.jsonl": bytes(range(128, 256)) + b"\n" + _line("x" * 3_000_000),
        folder / "day" / "hour" / "packed.jsonl.gz": gzip.compress(_line("below")),
        folder / "_SUCCESS": b"",
        tmp_path / "host a" / "other.jsonl": _line("other"),
    }
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    rows = read_ledger(spark, [str(folder)]).select("topic", "id").collect()
    ids = sorted(bytes(row["id"]).decode() for row in rows if row["topic"] is not None)
    assert ids == ["a}{b", "below", "bom", "crlf", "first", "whole", "x" * 3_000_000]
    assert [row["id"] for row in rows if row["topic"] is None] == [None] * 4


def test_ledger_that_is_cut_off_amid_its_compression_is_named(small: Small, tmp_path: Path) -> None:
    whole = gzip.compress(b"\n".join(_line(str(number)) for number in range(5_000)))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    small.record("a", 0)
    with pytest.raises(PipelineError, match=f"{cut} cannot be read: Unexpected end of input"):
        small.verify()


def test_ledger_with_a_name_that_spark_passes_over_is_refused(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = tmp_path / "_ledger.jsonl"
    path.write_bytes(_line("a"))
    with pytest.raises(OptionError, match=f"the ledger {path} has a name that Spark passes over"):
        read_ledger(spark, [str(path)])


# -- a real cluster --------------------------------------------------------------------------------


def _log_dirs(topics: ReplicatedTopics) -> list[Path]:
    return [broker.data_folder for broker in topics.cluster.brokers.values()]


@pytest.fixture(scope="module")
def sent(topics: ReplicatedTopics, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A topic that `tidelog produce` has filled, and the ledger it has written."""
    topic, folder = topics.create(partition_count=2), tmp_path_factory.mktemp("ledger")
    produced = tidelog(
        *("produce", topic, "--count", "5000", "--header", "a=1", "--ledger", str(folder)),
        *("--bootstrap", topics.bootstrap, "--json"),
    )
    (printed,) = objects(produced.stdout)
    assert (produced.returncode, printed["records"]) == (0, 5000)
    return topic, folder


def test_topic_is_what_its_producer_was_told(
    spark: "SparkSession", topics: ReplicatedTopics, sent: tuple[str, Path]
) -> None:
    topic, folder = sent
    log = topics_log(spark, [topic], {"kafka.bootstrap.servers": topics.bootstrap})
    report = verify(read_ledger(spark, [str(folder)]), log.rows, log_starts=log.starts)
    assert report.is_clean
    assert (report.stored, report.acknowledged, report.unacknowledged) == (5000, 5000, 0)


def test_folders_are_what_their_producer_was_told(
    spark: "SparkSession", topics: ReplicatedTopics, sent: tuple[str, Path]
) -> None:
    topic, folder = sent
    # High watermarks are written down every few seconds.
    wait_until(
        lambda: (
            sum(
                each.high_watermark or 0
                for each in choose_replicas(
                    find_partitions(map(str, _log_dirs(topics)), topics=[topic])
                )
            )
            == 5000
        ),
        within_s=30,
        what="all is committed by the checkpoints",
    )
    log = folders_log(spark, [str(each) for each in _log_dirs(topics)], [topic])
    report = verify(read_ledger(spark, [str(folder)]), log.rows, log_starts=log.starts)
    assert report.is_clean
    assert report.stored == 5000


@pytest.fixture
def copies(topics: ReplicatedTopics, sent: tuple[str, Path], tmp_path: Path) -> list[str]:
    """Of the replicas of that topic, a folder for each broker."""
    topic, _ = sent
    for number, log_dir in enumerate(_log_dirs(topics)):
        for folder in log_dir.glob(f"{topic}-*"):
            shutil.copytree(folder, tmp_path / str(number) / folder.name)
    return [str(each) for each in sorted(tmp_path.iterdir())]


def _alter_a_byte(folder: str) -> tuple[int, Path]:
    """Amid the first segment of one of the partitions: its number, and the file."""
    # Records without keys may all have gone to the other one.
    file = max(Path(folder).glob(f"*/{0:020}.log"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return int(file.parent.name[-1]), file


def test_replicas_of_a_cluster_are_equal_until_a_byte_of_one_is_not(
    spark: "SparkSession", copies: list[str]
) -> None:
    report = compare_replicas(spark, copies)
    assert report.is_clean
    assert [len(each.replicas) for each in report.partitions] == [3, 3]
    assert sum(each.end_offset for each in report.partitions) == 5000
    number, file = _alter_a_byte(copies[1])
    found = compare_replicas(spark, copies).partitions
    assert [each.is_equal for each in found] == [number != 0, number != 1]
    different = found[number]
    assert different.first_difference is not None
    assert different.first_difference.places[1].file == file


def test_command_compares_replicas(
    spark: "SparkSession",
    sent: tuple[str, Path],
    copies: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table for people, an object with --json, and the exit code is the verdict."""
    assert spark is not None  # The command takes the session that is there.
    topic, _ = sent
    command = ["pipeline", "verify", "--replicas", *copies]
    command += ["--master", f"local[{CORE_COUNT}]", *CONF]
    assert app.run(command) == 0
    printed = capsys.readouterr()
    assert not printed.err
    heading, first, second, *_, verdict = printed.out.splitlines()
    assert heading.split()[:5] == ["TOPIC", "PARTITION", "REPLICAS", "FROM", "TO"]
    assert [first.split()[:4], second.split()[:4]] == [[topic, n, "3", "0"] for n in ("0", "1")]
    assert verdict.startswith("Equal, byte for byte: 2 partitions, ")
    number, file = _alter_a_byte(copies[1])
    name = f"{topic}-{number}"
    assert app.run(command) == 1
    out = capsys.readouterr().out
    assert f"{name} differs from offset " in out
    assert sum(f"{path}/{name}/{file.name} position " in out for path in copies) == 3
    assert out.splitlines()[-1].startswith("Not equal: 1 of 2 partitions, ")
    assert app.run([*command, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["clean"]
    assert [each["equal"] for each in report["partitions"]] == [number != 0, number != 1]
    places = report["partitions"][number]["first_difference"]["places"]
    assert [place["what"].endswith("which is wrong") for place in places] == [False, True, False]


# -- columns ---------------------------------------------------------------------------------------

DATA = st.none() | st.binary(max_size=8)
HEADERS = st.lists(st.tuples(st.sampled_from(["guid", "b", ""]), DATA), max_size=3)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(DATA, DATA, HEADERS), min_size=1, max_size=100))
def test_spark_computes_what_producers_do(
    spark: "SparkSession",
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    rows = spark.createDataFrame(
        records, "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    ).select(checksum_column())
    expected = [
        record_checksum(key=key, value=value, headers=headers) for key, value, headers in records
    ]
    assert [row[0] for row in rows.collect()] == expected
