"""Takes tidelog to the executors of a cluster, and finds out before a job what they lack (X7).

Executors need a Python with what `NEEDED` names, and nothing of ours: the package that the driver
runs is sent to them as an archive. Spark unpacks an archive under the name that is asked for, in a
folder that is on the path of every Python worker, before anything that is installed there. So
unpacked as `tidelog` it is what tasks import, in the driver's version, and compiled modules work as
they do not within a zip file. Those are named after the platform and the Python that they are for
(`_ids.cpython-311-x86_64-linux-gnu.so`): elsewhere they are not seen, and the same is done in
Python (`records/compiled.py`).

Spark plans what a data source does in processes next to the driver, and runs them with the workers'
Python as well. Those of batches look into the folder with what was unpacked, that of a stream does
not (it is told of a folder `streaming_job` in there, which nobody makes). PYTHONPATH brings it
there: Spark hands `SparkContext.environment` to all of them. Tasks get it too, where it comes after
what was shipped and mostly names a folder that is not there.

Then a task for every core says what its Python has, and so does the one that plans. A job that
would fail on an import fails before it starts, in a sentence; so does one that no worker takes.
"""

import atexit
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tidelog
from tidelog.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

NEEDED: Final = {
    "confluent_kafka": "confluent-kafka",
    "cramjam": "cramjam",
    "crc32c": "crc32c",
    "pyarrow": "pyarrow",
}
"""What tasks import that is not ours: the module, and what pip calls it."""

WAIT_SETTING: Final = "spark.tidelog.workers.wait.s"
WAIT_MAX_S: Final = "120"
"""How long workers may take to come. One of Spark's settings, for clusters with a queue."""

_PACKAGE: Final = "tidelog"
# Sources of compiled modules too: a module that is older than its source is not used.
_SUFFIXES: Final = frozenset({".py", ".pyx", ".pxi", ".so", ".typed"})
_TAG: Final = "tidelog-looks-at-workers"
_PYTHON_PATH: Final = "PYTHONPATH"
_WHAT_IS_MISSING: Final = """\
import sys
from importlib.util import find_spec
print(*(module for module in sys.argv[1:] if find_spec(module) is None))
"""
_OTHER_VERSION: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH.*different version: (\S+) than that in driver: (\d+\.\d+)"
)
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)"')
_PYTHON_ERROR: Final = re.compile(r"[\w.]+(Error|Exception): ")


class WorkersUnfit(PipelineError):
    """The cluster's workers cannot run the job. The message says what to do about it."""


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """What the Python of a worker, or the one that plans, says of itself."""

    host: str
    executable: str
    missing: tuple[str, ...]


def ship(spark: "SparkSession") -> None:
    """Let tasks of `spark` import tidelog; raise WorkersUnfit if they cannot run.

    Data sources have to be registered after that (`registration.register`). Workers that come
    later get the same package, but nobody has looked at their Python.
    """
    context = spark.sparkContext
    if not any(_fragment(archive) == _PACKAGE for archive in context.listArchives):
        folder = Path(tempfile.mkdtemp(prefix="tidelog-ship-"))
        # Spark fetches it from there whenever an executor comes, as long as the driver lives.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        archive = folder / f"{_PACKAGE}-{tidelog.__version__}.zip"
        pack(archive)
        context.addArchive(f"{archive.as_uri()}#{_PACKAGE}")
    _let_streams_be_planned(context)
    require_fit(look_at_workers(context))
    require_fit([look_at_planner(context.pythonExec)])


def _let_streams_be_planned(context: "SparkContext") -> None:
    from pyspark import SparkFiles  # noqa: PLC0415 - needs the extra

    before = str(context.environment.get(_PYTHON_PATH, "")).split(os.pathsep)
    unpacked = SparkFiles.getRootDirectory()
    if unpacked not in before:
        path = os.pathsep.join(filter(None, [unpacked, *before]))
        context.environment[_PYTHON_PATH] = path


def pack(archive: Path) -> None:
    """Write what is in the folder of our package, as it is now."""
    root = Path(tidelog.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for path in sorted(root.rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                packed.write(path, path.relative_to(root))


def require_fit(pythons: Iterable[WorkerPython]) -> None:
    """Raise WorkersUnfit if one of them lacks something."""
    for python in pythons:
        if python.missing:
            packages = " ".join(NEEDED[module] for module in python.missing)
            raise WorkersUnfit(
                f"the Python of Spark's workers on {python.host} lacks "
                f"{', '.join(python.missing)}: "
                f"'{python.executable} -m pip install {packages}' there, or set PYSPARK_PYTHON to "
                "one that has them"
            )


def look_at_workers(context: "SparkContext") -> set[WorkerPython]:
    """Ask as many tasks as the cluster has cores; waits for the first worker to take one."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs the extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    is_late = threading.Event()
    try:
        with _cancelled_after(_wait_max_s(context), context, is_late):
            count = context.defaultParallelism
            return set(context.parallelize(range(count), count).mapPartitions(describe).collect())
    except (Py4JError, PySparkException) as error:
        if is_late.is_set():
            raise WorkersUnfit(_nobody_came(context)) from error
        # What a worker's Python raised comes as Spark's own exception, all else as Java's.
        thrown = getattr(error, "java_exception", None)
        message = error if thrown is None else thrown.getMessage()
        raise WorkersUnfit(reason_of(str(message))) from error


def look_at_planner(executable: str) -> WorkerPython:
    """Ask the program of this machine that has the name of the workers' Python."""
    here = socket.gethostname()
    if shutil.which(executable) is None:
        raise WorkersUnfit(
            f"Spark plans jobs with the workers' Python, and {executable} is not there on {here}, "
            "the driver's machine: have one under that name, or set PYSPARK_PYTHON to one that is "
            "there on all of them"
        )
    asked = subprocess.run(
        [executable, "-c", _WHAT_IS_MISSING, *NEEDED],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        raise WorkersUnfit(
            f"Spark plans jobs with the workers' Python, and {executable} does not run on {here}, "
            f"the driver's machine: {_telling_line(asked.stderr.splitlines())}"
        )
    return WorkerPython(here, executable, tuple(asked.stdout.split()))


def describe(_numbers: Iterable[int]) -> Iterator[WorkerPython]:
    """In a task. That a worker finds this function shows that tidelog was shipped."""
    missing = tuple(module for module in NEEDED if find_spec(module) is None)
    yield WorkerPython(socket.gethostname(), sys.executable, missing)


def reason_of(message: str) -> str:
    """What a failed task's message comes down to, with what to do about it."""
    versions = _OTHER_VERSION.search(message)
    if versions is not None:
        return (
            f"Spark's workers run Python {versions[1]} and the driver {versions[2]}: "
            "set PYSPARK_PYTHON to a Python of the same version on the workers"
        )
    program = _NO_PROGRAM.search(message)
    if program is not None:
        return (
            f"Spark's workers cannot run {program[1]}: set PYSPARK_PYTHON to a Python that is "
            "there on every worker"
        )
    said = [line.strip() for line in message.splitlines() if line.strip()]
    return f"Spark's workers do not run Python tasks: {_telling_line(said)}"


def _telling_line(lines: Sequence[str]) -> str:
    """The last line of a Python traceback, or the first of what Java has to say."""
    errors = [line for line in lines if _PYTHON_ERROR.match(line)]
    return errors[-1] if errors else next(iter(lines), "no reason given")


def _nobody_came(context: "SparkContext") -> str:
    memory = context.getConf().get("spark.executor.memory", "1g")
    return (
        f"no worker of {context.master} took a task within {_wait_max_s(context):.0f} s "
        f"({WAIT_SETTING}): one with a free core and {memory} of free memory "
        "(spark.executor.memory) is needed"
    )


def _wait_max_s(context: "SparkContext") -> float:
    wait = context.getConf().get(WAIT_SETTING, WAIT_MAX_S)
    try:
        return float(str(wait))
    except ValueError:
        raise WorkersUnfit(f"{WAIT_SETTING} is '{wait}' and must be a number of seconds") from None


@contextmanager
def _cancelled_after(
    timeout_s: float, context: "SparkContext", is_late: threading.Event
) -> Iterator[None]:
    """When the time is up, end the jobs that were started within, and say so by the event."""

    def give_up() -> None:
        is_late.set()
        context.cancelJobsWithTag(_TAG)

    timer = threading.Timer(timeout_s, give_up)
    context.addJobTag(_TAG)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        context.removeJobTag(_TAG)


def _fragment(archive: str) -> str:
    return archive.rpartition("#")[2]
