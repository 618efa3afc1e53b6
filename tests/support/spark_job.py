"""Jobs on Spark as programs of their own, for tests that need another session than the suite's.

The programs are the modules in `tests/pipeline/jobs`.
"""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.server_process import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
CORE_COUNT = 2
TIMEOUT_S = 600.0

# Written by `make` (`scripts/share_spark_classes.py`): with it a session starts in half the time.
# A Java that it does not fit would say so, and goes on without it.
_SHARED_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
_SHARING = f"-XX:SharedArchiveFile={_SHARED_CLASSES} -Xlog:disable"
# A JVM that compiles little is ready in half the time and does what tests ask of it as fast.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if _SHARED_CLASSES.exists() and " " not in sys.prefix:
    JAVA_OPTIONS = f"{JAVA_OPTIONS} {_SHARING}"
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": str(CORE_COUNT),
    # Few rows are done before the code for them would have been compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
CONF = [text for pair in SETTINGS.items() for text in ("--conf", "=".join(pair))]
"""The same for commands of the pipeline."""
QUICK_JAVA = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS}
"""The same for programs that take no settings. Java notes on standard error that it read them."""


def without_java_notes(errors: str) -> str:
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("NOTE: Picked up JDK_JAVA_"))


def run_job(name: str, *arguments: str, environment: Mapping[str, str]) -> Any:
    """What a job printed, which is JSON. Nothing else may be on its output, nor on its errors."""
    job = subprocess.run(
        _command(name, arguments),
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        preexec_fn=die_with_parent,
    )
    assert job.returncode == 0, job.stderr
    assert not job.stderr, job.stderr
    return json.loads(job.stdout)


def run_on_terminal(name: str, *arguments: str, environment: Mapping[str, str]) -> str:
    """All that somebody sees who runs the job on a terminal."""
    terminal, for_job = pty.openpty()
    try:
        job = subprocess.Popen(
            _command(name, arguments),
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=for_job,
            stdout=for_job,
            stderr=for_job,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
        )
        os.close(for_job)
        seen = _read_to_end(terminal)
        assert job.wait(TIMEOUT_S) == 0, seen
        return seen
    finally:
        os.close(terminal)


def _command(name: str, arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", f"tests.pipeline.jobs.{name}", *arguments]


def _read_to_end(terminal: int) -> str:
    seen = bytearray()
    while True:
        try:
            read = os.read(terminal, 65_536)
        except OSError:  # Nobody has the other side open any more.
            read = b""
        if not read:
            return seen.decode(errors="replace").replace("\r\n", "\n")
        seen += read
