"""What the commands of `tidelog pipeline` share: options, a session, progress, an end.

Progress is a line on stderr that moves, for a person at a terminal; with `--json` it is an object
for each micro-batch on stdout. The last thing is a table, or the object with `"done": true`.

Ctrl-C is counted, not raised, once the job runs: the running micro-batch is finished first. Asked a
second time, a command ends at once; nothing is lost then either, but work is done again.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.output import Cell, duration_text, is_terminal, print_json, print_table
from tidelog.pipeline.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.live import Live

    from tidelog.pipeline.running import Outcome, Progress, RunTerms

INTERRUPTED: Final = 130
# Spark's 200 are for clusters; each is a task, and a transaction, in every micro-batch.
SHUFFLE_PARTITIONS: Final = "8"

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_SIZES: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)", re.IGNORECASE)
_DURATIONS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

_RATE_UNITS_S: Final = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}

MasterOption: TypeAlias = Annotated[
    str, typer.Option(metavar="URL", help="Where Spark runs: local[*], spark://HOST:PORT, ...")
]
CheckpointOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="DIR", help="Where it is kept how far the job is; to go on, give the same again."
    ),
]
OnceOption: TypeAlias = Annotated[
    bool, typer.Option("--once", help="Take what is there now, and end.")
]
KafkaOption: TypeAlias = Annotated[
    list[str],
    typer.Option("--kafka", metavar="NAME=VALUE", help="A setting of the client; may be repeated."),
]
ConfOption: TypeAlias = Annotated[
    list[str],
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]


AllowLossOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-loss",
        help="Go on behind records that retention has removed, as with failOnDataLoss=false.",
    ),
]
GroupOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAME",
        help="A consumer group that is told how far the job is, so that its lag shows in any tool.",
        show_default="none",
    ),
]


class Guarantee(StrEnum):
    """What may be there of a record that was written by a job which was killed."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


GuaranteeOption: TypeAlias = Annotated[
    Guarantee | None,
    typer.Option(
        "--guarantee",
        help="How often a record is written by a job that is killed and started again.",
        show_default="exactly-once, where brokers have transactions",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every pipeline is told."""

    name: str
    bootstrap: str
    master: str
    kafka: Sequence[str]
    conf: Sequence[str]
    is_json: bool

    @property
    def kafka_options(self) -> dict[str, str]:
        """As the source and the sink take them."""
        given = {f"kafka.{name}": value for name, value in pairs("--kafka", self.kafka).items()}
        return {**given, "kafka.bootstrap.servers": self.bootstrap}

    def sink_options(self, guarantee: Guarantee | None) -> dict[str, str]:
        """The same, of a job that writes to a topic."""
        wanted = {} if guarantee is None else {"deliveryGuarantee": guarantee.value}
        return {**self.kafka_options, **wanted}


class Running:
    """A job that has a session: whether it is to stop, and whom it tells how it goes."""

    def __init__(
        self,
        spark: "SparkSession",
        interrupts: Interrupts,
        show: "Callable[[Progress], None]",
    ) -> None:
        self.spark = spark
        self.show = show
        self.is_stopped = interrupts.at_least(1)

    def terms(self, checkpoint: str, *, is_once: bool) -> "RunTerms":
        from tidelog.pipeline.running import RunTerms  # noqa: PLC0415 - only for jobs

        return RunTerms(
            checkpoint=checkpoint,
            is_once=is_once,
            on_progress=self.show,
            is_stopped=self.is_stopped,
        )


@contextmanager
def running(job: Job) -> Iterator[Running]:
    """A session, and a place to show progress. What Spark says of a failure becomes a sentence.

    Results are printed behind it: the line is gone then.
    """
    from tidelog.pipeline.registration import require_extra  # noqa: PLC0415 - only for jobs

    require_extra()
    from tidelog.pipeline.running import failure_of  # noqa: PLC0415 - loads pyspark

    settings = {
        "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
        **pairs("--conf", job.conf),
    }
    try:
        with _session(job, settings) as spark, _progress(job) as show, _interrupts() as interrupts:
            yield Running(spark, interrupts, show)
    except OptionError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        failure = failure_of(str(error))
        if isinstance(failure, OptionError):
            raise ConfigError(str(failure)) from error
        raise failure from error


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """Raises ConfigError naming the option."""
    found = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise ConfigError(f"{option} is {each!r} but must be NAME=VALUE")
        found[name] = value
    return found


def size_bytes(option: str, text: str) -> int:
    """`128MB`, `64k`, `1.5G`. Raises ConfigError naming the option."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (size := int(float(found[1]) * _SIZES[found[2].upper()])) < 1:
        raise ConfigError(f"{option} is {text!r} but must be a size such as 128MB")
    return size


def duration_ms(option: str, text: str) -> int:
    """`500ms`, `10m`, `2h`. Raises ConfigError naming the option."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{option} is {text!r} but must be a duration such as 30s or 10m")
    return int(found[1]) * _DURATIONS_MS[found[2].lower()]


def spark_duration(option: str, text: str) -> str:
    """The same in Spark's words."""
    return f"{duration_ms(option, text)} milliseconds"


def require_other_topic(source: str, target: str) -> None:
    """A job that reads what it writes has no end."""
    if source == target:
        raise ConfigError(f"TARGET is {target}, which is the TOPIC that is read: name another one")


def rate_per_s(option: str, text: str) -> float:
    """`5000/s`, `300/min` or `5000`, which is in a second. Raises ConfigError naming the option."""
    number, _, unit = text.partition("/")
    try:
        rate = float(number) / _RATE_UNITS_S[unit]
    except (ValueError, KeyError):
        raise ConfigError(f"{option} is {text!r} but must be a rate such as 5000/s") from None
    if not 0 < rate < float("inf"):
        raise ConfigError(f"{option} is {text!r} but must be more than nothing")
    return rate


def print_outcome(job: Job, outcome: "Outcome", more: Mapping[str, Cell]) -> None:
    """What came of it, once: for people in a table."""
    if job.is_json:
        print_json(
            {
                "done": True,
                "pipeline": job.name,
                "rows": outcome.row_count,
                **outcome.counts,
                **more,
                "batches": outcome.batch_count,
                "lag": outcome.lag,
                "took_s": round(outcome.took_s, 3),
                "stopped": outcome.was_stopped,
            }
        )
        return
    named: dict[str, Cell] = {
        "rows": outcome.row_count,
        **outcome.counts,
        **more,
        "batches": outcome.batch_count,
        "lag": outcome.lag,
        "rows/s": int(outcome.row_count / outcome.took_s) if outcome.took_s else 0,
        "time": duration_text(outcome.took_s),
    }
    columns = [name.upper().replace("_", " ") for name in named]
    print_table(columns, [list(named.values())])


def exit_code(outcome: "Outcome", *, is_once: bool) -> int:
    """What goes on until it is told to end is done when it is told so; what has an end is not."""
    return INTERRUPTED if is_once and outcome.was_stopped else 0


def progress_text(progress: "Progress") -> str:
    """`12,000 rows  4,000/s  lag 1,200  batch 0.8 s  3 duplicates`."""
    parts = [f"{progress.total_row_count:,} rows", f"{progress.rows_per_s:,.0f}/s"]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    parts.append(f"batch {progress.batch_s:.1f} s")
    parts += [f"{count:,} {name.replace('_', ' ')}" for name, count in progress.counts.items()]
    return "  ".join(parts)


@contextmanager
def _session(job: Job, settings: Mapping[str, str]) -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only for jobs

    from tidelog.pipeline.session import spark_session  # noqa: PLC0415

    # Of a program that runs commands, such as a test; it is not ours to stop.
    was_there = SparkSession.getActiveSession() is not None
    hush_py4j()
    # pyspark leaves a Java behind for ever if it is interrupted while it starts one.
    with _said_while_starting(), _interrupts() as interrupts:
        spark = spark_session(app_name=f"tidelog {job.name}", master=job.master, settings=settings)
    try:
        if interrupts.count:
            raise KeyboardInterrupt
        yield spark
    finally:
        if not was_there:
            spark.stop()


def hush_py4j() -> None:
    """Whoever types Ctrl-C while Spark starts is not told on pages what that has broken off."""
    # Not only py4j's own logger: it uses the root, too.
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _interrupts() -> Iterator[Interrupts]:
    """Spark has put a handler of its own in place when its session starts; ours is the last."""
    with _Impatience() as interrupts:
        yield interrupts


class _Impatience(Interrupts):
    """The second request to end is not waited with."""

    def _on_signal(self, signal_number: int, frame: object) -> None:
        self.count += 1
        if self.count > 1:
            sys.stderr.flush()
            os._exit(INTERRUPTED)


@contextmanager
def _said_while_starting() -> Iterator[None]:
    with _Line() as line:
        if is_terminal(sys.stderr):
            line.show("Spark is starting")
        yield


@contextmanager
def _progress(job: Job) -> "Iterator[Callable[[Progress], None]]":
    if job.is_json:
        yield _print_progress
        return
    if not is_terminal(sys.stderr):
        yield lambda _progress: None
        return
    with _Line() as line:
        yield lambda progress: line.show(f"{job.name}: {progress_text(progress)}")


class _Line:
    """A line that is there from the first time that something is to be shown, until the end."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - only for terminals
        from rich.live import Live  # noqa: PLC0415
        from rich.spinner import Spinner  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        drawn = Spinner("dots", Text(text))
        if self._live is not None:
            self._live.update(drawn)
            return
        # rich would take what is printed to stdout meanwhile, and write it to stderr.
        self._live = Live(
            drawn,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()


def _print_progress(progress: "Progress") -> None:
    print_json(
        {
            "batch": progress.batch,
            "rows": progress.row_count,
            "total_rows": progress.total_row_count,
            "rows_per_s": round(progress.rows_per_s, 1),
            "lag": progress.lag,
            "batch_s": round(progress.batch_s, 3),
            **progress.counts,
        }
    )
    sys.stdout.flush()
