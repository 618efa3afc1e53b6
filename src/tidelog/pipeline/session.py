"""Spark sessions that start with nothing but `pip install 'tidelog[pipeline]'`.

What a user would otherwise have to know and set: which Java, which Python the workers run, which
address to bind to, how to keep Spark quiet, and what executors lack (`java.py`, `shipping.py`,
`worker_python.py`).

Whatever the user has set wins: `settings` over everything here, `PYSPARK_PYTHON` and
`SPARK_LOCAL_IP` over what would be set for the start. Spark's log is off unless it is asked for,
by `is_verbose` or by a level in TIDELOG_SPARK_LOG: errors reach the caller as exceptions, and the
log would only repeat them in Java's words.
"""

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.cached_files import cached_text
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.java import find_java, java_home
from tidelog.pipeline.registration import register, require_extra
from tidelog.pipeline.shipping import ship
from tidelog.pipeline.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LOG_VARIABLE: Final = "TIDELOG_SPARK_LOG"

_LOOPBACK: Final = "127.0.0.1"
_NAMES_OF_THIS_MACHINE: Final = {_LOOPBACK, "localhost"}
_STANDALONE: Final = "spark://"
_MASTERS: Final = ("local", _STANDALONE, "yarn", "k8s://")
_MASTER_TIMEOUT_S: Final = 10.0

_QUIET: Final = "OFF"
_VERBOSE: Final = "WARN"
_TELLING: Final = ("WARN", "INFO", "DEBUG", "TRACE", "ALL")
_LEVELS: Final = ("OFF", "FATAL", "ERROR", *_TELLING)
# The logger beside root is the one by which Spark takes itself for a shell; with a level other than
# root's it says so on the terminal.
_LOGGING: Final = """\
status = off
rootLogger.level = {level}
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level}
"""
# Of the JVM's threads, whose default is 1m; pages are taken when they are touched. Whether a batch
# function was broken off by `stop`, Spark finds out by a regular expression that needs up to 1 KB
# of stack for each character of a Python traceback with Java's in it, some 10,000 of them.
# Without that Java prints a StackOverflowError on the terminal, in a thousand lines.
_STACK_SIZE: Final = "32m"


class SessionFailed(PipelineError):
    """Spark did not start. The message is Spark's own reason, or what to do about it."""


def spark_session(
    *,
    app_name: str,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    is_verbose: bool = False,
) -> "SparkSession":
    """A session that knows `format("tidelog")`, on this machine or on a cluster.

    Spark has one in a process. If it runs already, with the same master, it is returned as it is,
    with `settings` as far as they can be changed while it runs.
    """
    require_extra()
    level = _log_level(is_verbose=is_verbose)
    _require_master(master)
    if _is_running(master):
        return _equipped(_running_session(settings or {}), master)
    spark = _start(app_name, master, settings or {}, level)
    try:
        spark.sparkContext.setLogLevel(level)
        return _equipped(spark, master)
    except BaseException:
        spark.stop()
        raise


def is_local(master: str) -> bool:
    """Whether tasks run within the driver's process, and so with all that it has."""
    return master == "local" or master.startswith("local[")


def _log_level(*, is_verbose: bool) -> str:
    asked_for = os.environ.get(LOG_VARIABLE)
    if not asked_for:
        return _VERBOSE if is_verbose else _QUIET
    if asked_for.upper() not in _LEVELS:
        raise SessionFailed(
            f"{LOG_VARIABLE} is '{asked_for}' and must be one of {', '.join(_LEVELS)}"
        )
    return asked_for.upper()


def _require_master(master: str) -> None:
    """Say at once what Spark says after a minute, in many lines."""
    if not master.startswith(_MASTERS):
        raise SessionFailed(
            f"the master '{master}' is none of Spark's: local[*], spark://host:port, yarn, "
            "k8s://host:port"
        )
    if master.startswith(_STANDALONE) and not any(map(_answers, _addresses(master))):
        raise SessionFailed(
            f"nobody listens at {master}: start a Spark master there, or name another"
        )


def _addresses(master: str) -> list[tuple[str, int]]:
    """Of a standalone cluster's masters: one leads, others may stand by."""
    addresses = []
    for each in master.removeprefix(_STANDALONE).split(","):
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal():
            raise SessionFailed(f"the master {master} is not {_STANDALONE}host:port")
        addresses.append((host, int(port)))
    return addresses


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=_MASTER_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _is_running(master: str) -> bool:
    """Whether this process has a session; one with another master is in the way."""
    from pyspark import SparkContext  # noqa: PLC0415 - needs the extra

    # Not `getActiveSession`, which is about this thread.
    context = SparkContext._active_spark_context
    if context is not None and context.master != master:
        raise SessionFailed(
            f"a session with the master {context.master} runs in this process; it has to be "
            f"stopped before one with {master} starts"
        )
    return context is not None


def _running_session(settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415 - needs the extra

    return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def _equipped(spark: "SparkSession", master: str) -> "SparkSession":
    if not is_local(master):
        ship(spark)
    register(spark)
    return spark


def _start(app_name: str, master: str, settings: Mapping[str, str], level: str) -> "SparkSession":
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs the extra
    from pyspark import SparkConf  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app_name)
    conf.setAll(list({**_settings(master, level), **settings}.items()))
    try:
        with _environment(_variables(master)):
            return SparkSession.builder.config(conf=conf).getOrCreate()
    except (Py4JError, PySparkException) as error:
        hint = "" if level in _TELLING else f" ({LOG_VARIABLE}=WARN shows Spark's log)"
        raise SessionFailed(
            f"Spark did not start with the master {master}: {_reason(error)}{hint}"
        ) from error


def _reason(error: Exception) -> str:
    thrown = getattr(error, "java_exception", None)
    message = str(error if thrown is None else thrown.getMessage()).partition("\n")[0]
    # What is left of a minute in which Spark asked a master three times.
    return "the master did not answer" if "stopped SparkContext" in message else message


def _settings(master: str, level: str) -> dict[str, str]:
    """Ours. What Spark has good defaults for is left to it, the session's time zone among them."""
    logging = cached_text("log4j2.properties", _LOGGING.format(level=level))
    chosen = {
        # Not `extraJavaOptions`: that is the user's, and Spark adds it to these.
        "spark.driver.defaultJavaOptions": (
            f'"-Dlog4j2.configurationFile={logging.as_uri()}" -Xss{_STACK_SIZE}'
        ),
        "spark.ui.showConsoleProgress": "true" if level != _QUIET else "false",
    }
    if is_local(master):
        chosen["spark.ui.enabled"] = "false"
        # Spark has 200, of a cluster's size: a stream with state would be busy with empty ones.
        chosen["spark.sql.shuffle.partitions"] = str(2 * _core_count(master))
    if _is_on_this_machine(master):
        chosen |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return chosen


def _core_count(master: str) -> int:
    """How many tasks run at once: 3 of `local[3]` or of `local[3,2]`, all cores of `local[*]`."""
    [wanted] = re.findall(r"^local\[(\d+)", master) or ["1" if master == "local" else "*"]
    return (os.cpu_count() or 1) if wanted == "*" else int(wanted)


def _variables(master: str) -> dict[str, str]:
    """What Spark takes from the environment alone, and only when it starts."""
    chosen = {
        "JAVA_HOME": str(java_home(find_java())),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or _python(master),
        # Not the user's, which may be a notebook. Spark runs data sources with it, to plan.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if _is_on_this_machine(master):
        chosen["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or _LOOPBACK
    return chosen


def _python(master: str) -> str:
    """For workers. Those of a cluster are elsewhere, where there is no script of ours."""
    if not is_local(master):
        return sys.executable
    import pyspark  # noqa: PLC0415 - needs the extra

    folder = Path(pyspark.__file__).parent
    return str(worker_python(pyspark=folder, spark_home=os.environ.get("SPARK_HOME")))


def _is_on_this_machine(master: str) -> bool:
    """Whether nobody elsewhere has to reach the driver."""
    if not master.startswith(_STANDALONE):
        return master.startswith("local")
    return {host for host, _port in _addresses(master)} <= _NAMES_OF_THIS_MACHINE


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have these in the environment for a while; other programs that are started later do not."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
