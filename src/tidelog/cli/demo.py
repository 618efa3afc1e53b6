"""`tidelog demo`: a tour without questions (O6).

Three brokers, a producer that waits for all replicas, its leader killed under it, how long that was
felt, and what Spark finds when it compares the log with what the producer was told. Everything is
done by commands that are shown as they are typed, so that a visitor can do it again, otherwise.
"""

import importlib.util
import shutil
import subprocess
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.cli.demo_shell import DemoFailed, DemoShell, print_command
from tidelog.cli.demo_text import NEXT, STEPS, WITHOUT_SPARK
from tidelog.cli.output import print_heading, print_line
from tidelog.cli.program import program
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.ledger_times import LedgerTimes, bars, longest_gap, read_times
from tidelog.lab.processes import ProcessIdentity, wait_for_end
from tidelog.lab.state import read_state

CLUSTER: Final = "cluster"
TOPIC: Final = "demo"
PARTITION_COUNT: Final = 3
RECORD_SIZE: Final = 1_000
RATE: Final = 2_000
KILL_AFTER: Final = 0.3
"""Of what the producer sends."""
WAIT_S: Final = 60.0
LOOK_EVERY_S: Final = 0.1
SHOWN_BEFORE_MS: Final = 1_500
SHOWN_AFTER_MS: Final = 4_500
PICTURE_WIDTH: Final = 60
TEXT_WIDTH: Final = 78


def register(app: typer.Typer) -> None:
    app.command("demo")(run)


def run(
    seconds: Annotated[
        int, typer.Option(min=4, max=600, help="How long the producer writes.")
    ] = 20,
    keeps: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running, and its ledger there.")
    ] = False,
) -> int:
    """See a cluster survive the kill -9 of a leader, and Spark prove it, in a minute or two.

    The cluster has a folder and ports of its own, and is gone at the end. Exit 1 if anything that
    was acknowledged is lost or there twice.
    """
    begun = time.monotonic()
    with _folder(keeps=keeps) as folder:
        is_clean = _Tour(folder).go(record_count=seconds * RATE)
        print_line()
        print_line(f"That took {time.monotonic() - begun:.0f} s.")
        if keeps:
            print_line(f"It is all still there: {program()} down --data {folder / CLUSTER}")
        _print_where_next()
    return 0 if is_clean else 1


@contextmanager
def _folder(*, keeps: bool) -> Iterator[Path]:
    """Where everything is; at the end there is no broker of it, and no file."""
    folder = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    try:
        yield folder
    except BaseException:
        keeps = False
        raise
    finally:
        if not keeps:
            if (folder / CLUSTER).exists():
                DemoShell().ask(
                    *("down", "--data", str(folder / CLUSTER), "--timeout", "10", "--kill")
                )
            shutil.rmtree(folder, ignore_errors=True)


class _Tour:
    """The steps, in order; each begins with what is about to be seen."""

    def __init__(self, folder: Path) -> None:
        self._shell = DemoShell()
        self._folder = folder
        self._ledger = folder / "ledger.jsonl"
        self._steps = iter(enumerate(STEPS, start=1))

    def go(self, *, record_count: int) -> bool:
        """Whether the log is what its producer was told it is."""
        self._start_brokers()
        self._next_step()
        self._shell.show("topics", "create", TOPIC, "--partitions", str(PARTITION_COUNT))
        self._next_step()
        victim, killed_ms = self._kill_under_load(record_count)
        self._next_step()
        _print_gap(read_times(self._ledger), victim, killed_ms)
        self._next_step()
        self._shell.show("restart", str(victim))
        self._shell.show("topics", "describe", TOPIC)
        self._next_step()
        if importlib.util.find_spec("pyspark") is None:
            print_line(WITHOUT_SPARK)
            return True
        return self._shell.show("pipeline", "verify", TOPIC, "--ledger", str(self._ledger)) == 0

    def _next_step(self) -> None:
        number, (title, text) = next(self._steps)
        print_line()
        print_heading(f"{number}. {title}")
        print_line(textwrap.fill(text, TEXT_WIDTH))
        print_line()

    def _start_brokers(self) -> None:
        self._next_step()
        self._shell.export("TIDELOG_DATA", str(self._folder / CLUSTER))
        command = ("up", "--detach", "--port", "0", "--profile", "reliable")
        print_command(*command)
        begun = time.monotonic()
        answer = self._shell.ask(*command)
        print_line(f"{len(answer['brokers'])} brokers, after {time.monotonic() - begun:.1f} s.")
        self._shell.export("TIDELOG_BOOTSTRAP", answer["bootstrap"])

    def _kill_under_load(self, record_count: int) -> tuple[int, int]:
        """Who was killed, and when."""
        load = ("--count", str(record_count), "--size", str(RECORD_SIZE), "--rate", str(RATE))
        with self._shell.beside(
            *("produce", TOPIC, *load, "--acks", "all", "--ledger", str(self._ledger))
        ) as producer:
            self._wait_for(producer, lambda: self._acknowledged() >= record_count * KILL_AFTER)
            print_line(f"{self._acknowledged():,} records are acknowledged, and it goes on.")
            self._next_step()
            victim = self._leaders()[0]
            with _moment_of_death(self._process(victim)) as died_ms:
                self._shell.show("kill", str(victim))
            self._wait_for(producer, lambda: victim not in self._leaders())
            self._shell.show("topics", "describe", TOPIC)
            print_line("The producer goes on, and ends:")
            output, complaints = producer.communicate()
            if producer.returncode != 0:
                raise DemoFailed(f"the producer gave up: {complaints.strip()}")
            print_line(output.strip())
        return victim, died_ms[0]

    def _process(self, broker_id: int) -> ProcessIdentity:
        brokers = read_state(ClusterFolder(self._folder / CLUSTER).state_file)
        return next(broker.process for broker in brokers if broker.id == broker_id)

    def _acknowledged(self) -> int:
        return read_times(self._ledger).acknowledged_count if self._ledger.exists() else 0

    def _leaders(self) -> list[int]:
        described = self._shell.ask("topics", "describe", TOPIC)
        return [partition["leader"] for partition in described["partitions"]]

    def _wait_for(self, producer: "subprocess.Popen[str]", is_so: Callable[[], bool]) -> None:
        """A producer that has ended by then has ended too early."""
        give_up_at = time.monotonic() + WAIT_S
        while not is_so():
            if producer.poll() not in (None, 0):
                _, complaints = producer.communicate()
                raise DemoFailed(f"the producer gave up: {complaints.strip()}")
            if time.monotonic() > give_up_at:
                raise DemoFailed(f"the cluster did not go on within {WAIT_S:.0f} s")
            time.sleep(LOOK_EVERY_S)


@contextmanager
def _moment_of_death(process: ProcessIdentity) -> Iterator[list[int]]:
    """When the process was gone, for whoever has killed it by the end."""
    died_ms: list[int] = []

    def watch() -> None:
        wait_for_end(process, timeout_s=WAIT_S)
        died_ms.append(time.time_ns() // 1_000_000)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield died_ms
    watcher.join()


def _print_gap(times: LedgerTimes, victim: int, killed_ms: int) -> None:
    begin_ms, end_ms = killed_ms - SHOWN_BEFORE_MS, killed_ms + SHOWN_AFTER_MS
    print_line("Acknowledgements around the kill, 0.1 s each:")
    print_line()
    for partition, moments in times.acknowledged_ms.items():
        drawn = bars(moments, begin_ms=begin_ms, end_ms=end_ms, width=PICTURE_WIDTH)
        gap = longest_gap(times, partition, since_ms=killed_ms)
        print_line(f"  partition {partition}  {drawn}  longest gap {gap.length_ms / 1000:.2f} s")
    mark = " " * (PICTURE_WIDTH * SHOWN_BEFORE_MS // (SHOWN_BEFORE_MS + SHOWN_AFTER_MS))
    print_line(f"               {mark}↑ broker {victim} is killed")
    print_line()
    print_line(
        f"{times.sent_count:,} records sent, {times.acknowledged_count:,} acknowledged, "
        f"{times.failed_count:,} failed."
    )


def _print_where_next() -> None:
    print_line("Where to look next:")
    print_line()
    lines = [(what.format(program=program()), why) for what, why in NEXT]
    width = max(len(what) for what, _ in lines)
    for what, why in lines:
        print_line(f"  {what.ljust(width)}  {why}")
