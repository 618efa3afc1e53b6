"""`tidelog pipeline` on a terminal: progress and Ctrl-C (X4, O1)."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.clients import NewRecord
from tests.support.command_line import environment
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import die_with_parent
from tests.support.spark_job import CONF, CORE_COUNT, ROOT
from tidelog.cli.pipeline_running import INTERRUPTED
from tidelog.pipeline.archive.manifest_log import manifest_of

WAIT_S = 180.0


def test_ctrl_c_stops_after_what_is_being_written(topics: ReplicatedTopics, tmp_path: Path) -> None:
    """On a terminal, where progress is a line that moves and Spark keeps quiet."""
    topic = topics.create()
    topics.send(topic, [NewRecord(None, b"x", 0, ())] * 100)
    archive = tmp_path / "archive"
    terminal, for_command = pty.openpty()
    command = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "tidelog", "pipeline", "archive", topic, str(archive)),
            *("--max-delay", "0s", "--bootstrap", topics.bootstrap),
            *("--master", f"local[{CORE_COUNT}]", *CONF),
        ],
        cwd=ROOT,
        env=environment(COLUMNS="120"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=for_command,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
    )
    os.close(for_command)
    shown = bytearray()
    reader = threading.Thread(target=_read_to_end, args=(terminal, shown))
    reader.start()
    try:
        _wait_until(lambda: _record_count(archive) == 100)
        # As a terminal does it: everybody who runs there hears of it.
        os.killpg(command.pid, signal.SIGINT)
        printed, _ = command.communicate(timeout=WAIT_S)
    finally:
        command.kill()
        reader.join()
        os.close(terminal)
    assert command.returncode == 0
    assert b"has 100 records of" in printed
    assert b"Spark is starting" in shown
    assert b"100 rows" in shown
    assert b"lag 0" in shown
    assert b"WARN" not in shown


def test_ctrl_c_while_java_starts_leaves_none_behind(tmp_path: Path) -> None:
    """Somebody who reads what is printed would wait for its end as well."""
    command = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "tidelog", "pipeline", "dedup", "orders", "unique"),
            *("--id", "key", "--checkpoint", str(tmp_path)),
            *("--master", f"local[{CORE_COUNT}]", *CONF),
        ],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
    )
    try:
        _wait_until(lambda: _is_starting_spark(command.pid))
        os.kill(command.pid, signal.SIGINT)
        printed = command.communicate(timeout=WAIT_S / 3)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
    assert command.returncode == INTERRUPTED
    assert printed == (b"", b"")


def _is_starting_spark(pid: int) -> bool:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    with suppress(OSError):
        return any(b"spark" in Path(f"/proc/{each}/cmdline").read_bytes() for each in children)
    return False


def _read_to_end(terminal: int, shown: bytearray) -> None:
    """A terminal that nobody looks at fills up, and who writes to it waits."""
    with suppress(OSError):  # Nobody has the other side open any more.
        while read := os.read(terminal, 65_536):
            shown += read


def _record_count(archive: Path) -> int:
    if not (archive / "_manifest").exists():
        return 0
    return sum(each.record_count for each in manifest_of(str(archive)).files())


def _wait_until(is_so: Any) -> None:
    give_up_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.2)
