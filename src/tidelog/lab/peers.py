#!/usr/bin/env python3
"""Fetch the systems that tests and benchmarks run beside tidelog: Apache Kafka and others.

`tidelog bench peers fetch` runs it, and `make peers` runs this file as a program. It needs `mvn`
and `java` on the machine and nothing else, not even tidelog's virtual environment, so only the
standard library is used here. It is also the one place that knows where Kafka's jars are.
(`lab/zookeeper.py` finds ZooKeeper's.)

    $TIDELOG_PEERS/kafka-4.3.0/     default of TIDELOG_PEERS: ~/.cache/tidelog/peers
        libs/*.jar
        manifest.txt                one line per jar: size in bytes, name
    $TIDELOG_PEERS/zookeeper-3.9.5/
    $TIDELOG_PEERS/spark-kafka-4.2.0/

Invariants:

    I1  The folder appears by a single rename, so a half-fetched one is never taken for a whole one.
    I2  A jar that is missing or has another size than in the manifest makes the folder incomplete,
        and the next run fetches it again.

Exit codes: 0 the jars are there, 1 fetching them failed, 3 `mvn` or `java` is missing
(0 with --optional, for callers that can go on without).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

KAFKA_VERSION = "4.3.0"
ZOOKEEPER_VERSION = "3.9.5"
CONNECTOR_VERSION = "4.2.0"
POMS = Path(__file__).resolve().with_name("poms")
MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
ERROR_LINES_MAX = 20
PROGRESS_STEP = 10


@dataclass(frozen=True)
class Peer:
    """Something to fetch: `peers/<name>.xml` says of what it is made."""

    name: str
    title: str
    version: str
    without: str

    @property
    def folder(self) -> Path:
        return peers_folder() / f"{self.name}-{self.version}"

    def __str__(self) -> str:
        return f"{self.title} {self.version}"


KAFKA = Peer(
    "kafka",
    "Apache Kafka",
    KAFKA_VERSION,
    "Tests and benchmarks that run beside Kafka will be skipped.",
)
ZOOKEEPER = Peer(
    "zookeeper", "ZooKeeper", ZOOKEEPER_VERSION, "Its servers are run from pyspark, if at all."
)

CONNECTOR = Peer(
    "spark-kafka",
    "Spark's Kafka connector",
    CONNECTOR_VERSION,
    "Tests and benchmarks that compare the two sources will be skipped.",
)
PEERS = (KAFKA, ZOOKEEPER, CONNECTOR)


def peers_folder() -> Path:
    configured = os.environ.get("TIDELOG_PEERS")
    return Path(configured) if configured else Path.home() / ".cache" / "tidelog" / "peers"


def kafka_libs() -> Path:
    return KAFKA.folder / "libs"


def connector_jars() -> list[Path]:
    """What `spark.jars` has to name for Spark's own Kafka source; empty if it was not fetched."""
    return (
        sorted((CONNECTOR.folder / "libs").glob("*.jar")) if is_complete(CONNECTOR.folder) else []
    )


def missing_programs(programs: Iterable[str]) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]


def why_kafka_is_unavailable() -> str | None:
    """One sentence for a skipped test, or None if Kafka can be run."""
    if missing_programs(["java"]):
        return "java is not on the PATH, so Apache Kafka cannot be run"
    if not is_complete(KAFKA.folder):
        return f"Apache Kafka's jars are not in {kafka_libs()}; `make peers` fetches them"
    return None


def is_complete(folder: Path) -> bool:
    try:
        lines = (folder / "manifest.txt").read_text(encoding="utf-8").splitlines()
        return bool(lines) and lines == _manifest(folder / "libs")
    except FileNotFoundError:
        return False


def main() -> int:
    return fetch_all(is_optional=_parse_arguments().optional)


def fetch_all(*, is_optional: bool) -> int:
    """Have every peer on this machine; the exit code."""
    return max(_provide(peer, is_optional=is_optional) for peer in PEERS)


def _provide(peer: Peer, *, is_optional: bool) -> int:
    if is_complete(peer.folder):
        _say(f"{peer} is in {peer.folder}")
        return 0
    missing = missing_programs(["mvn", "java"])
    if missing:
        _say(
            f"{peer} was not fetched: {' and '.join(missing)} not found on the PATH. {peer.without}"
        )
        return 0 if is_optional else 3
    return _fetch(peer)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Fetch the jars of Apache Kafka, ZooKeeper and Spark's connector from Maven."
    )
    parser.add_argument(
        "--optional", action="store_true", help="exit 0 when mvn or java is missing, not 3"
    )
    return parser.parse_args()


def _fetch(peer: Peer) -> int:
    folder = peer.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    _say(f"Fetching {peer} to {folder}")
    # In the same folder as the target: a rename is atomic only within one file system.
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        exit_code = _run_maven(peer, fresh / "libs")
        if exit_code != 0:
            return 1
        lines = _manifest(fresh / "libs")
        (fresh / "manifest.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        fresh.chmod(0o755)  # mkdtemp makes it private
        _put_in_place(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _say(f"{peer} is in {folder}: {len(lines)} jars")
    return 0


def _run_maven(peer: Peer, libs: Path) -> int:
    pom = POMS / f"{peer.name}.xml"
    command = ["mvn", "-B", "-f", str(pom), MAVEN_GOAL, f"-DoutputDirectory={libs}"]
    command += [f"-D{peer.name}.version={peer.version}", "-DincludeScope=runtime"]
    progress = _progress_printer()
    problems: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as maven:
        assert maven.stdout is not None
        for line in maven.stdout:
            progress(line)
            if "[ERROR]" in line and len(problems) < ERROR_LINES_MAX:
                problems.append(line.rstrip())
    if maven.returncode != 0:
        _say(f"mvn failed with exit code {maven.returncode}: {' '.join(command)}")
        for problem in problems:
            _say(f"  {problem}")
    return maven.returncode


def _progress_printer() -> Callable[[str], None]:
    """Count jars as Maven names them: one moving line on a terminal, else a line now and then."""
    fetched = re.compile(r"Downloaded from \S+ \S+\.jar")
    counts = {"downloaded": 0, "copied": 0}
    on_terminal = sys.stdout.isatty()

    def observe(line: str) -> None:
        if fetched.search(line):
            counts["downloaded"] += 1
        elif "Copying " in line and ".jar" in line:
            counts["copied"] += 1
        else:
            return
        text = f"  {counts['downloaded']} jars downloaded, {counts['copied']} in place"
        if on_terminal:
            sys.stdout.write(f"\r{text}")
            sys.stdout.flush()
        elif sum(counts.values()) % PROGRESS_STEP == 0:
            _say(text)

    return observe


def _put_in_place(fresh: Path, folder: Path) -> None:
    if folder.exists() and not is_complete(folder):
        shutil.rmtree(folder)
    try:
        fresh.rename(folder)
    except OSError:
        # Another run was quicker. Its result is as good as ours.
        if not is_complete(folder):
            raise


def _manifest(libs: Path) -> list[str]:
    return [f"{jar.stat().st_size} {jar.name}" for jar in sorted(libs.glob("*.jar"))]


def _say(text: str) -> None:
    clear_line = "\r\033[K" if sys.stdout.isatty() else ""
    sys.stdout.write(f"{clear_line}{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
