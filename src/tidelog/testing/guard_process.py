"""The process that a guardian is (`guardian.py`): waits for its starter's end, and clears up.

    python -P -m tidelog.testing.guard_process PID

Its standard input has a line for each folder: `+FOLDER` to watch it, `-FOLDER` to forget it. The
starter is gone when that ends, or when this process has another parent: a fork of the starter may
hold the other end of the pipe for longer.

Nothing of the lab is loaded before it is needed: this starts beside brokers that are waited for.
"""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.lab.folder import ClusterFolder

_LOOK_INTERVAL_S: Final = 0.5
_READ_BYTES: Final = 65_536
_REMOVE_ATTEMPTS: Final = 3


def main(arguments: Sequence[str]) -> int:
    (starter,) = map(int, arguments)
    for folder in _folders_left_by(starter):
        end_cluster(folder)
    return 0


def _folders_left_by(starter: int) -> list[Path]:
    """Return once the starter is gone: what it watched, and did not end."""
    folders: dict[Path, None] = {}
    half_line = b""
    while True:
        readable, _, _ = select.select([0], [], [], _LOOK_INTERVAL_S)
        data = os.read(0, _READ_BYTES) if readable else b""
        *lines, half_line = (half_line + data).split(b"\n")
        for line in lines:
            folder = Path(os.fsdecode(line[1:]))
            if line.startswith(b"+"):
                folders[folder] = None
            else:
                folders.pop(folder, None)
        if (readable and not data) or os.getppid() != starter:
            return list(folders)


def end_cluster(root: Path) -> None:
    """Kill every broker that was started in the folder, and remove it."""
    from tidelog.lab.folder import ClusterFolder  # noqa: PLC0415
    from tidelog.lab.running import kill_broker  # noqa: PLC0415
    from tidelog.lab.state import read_state  # noqa: PLC0415

    folder = ClusterFolder(root)
    for broker in read_state(folder.state_file):
        kill_broker(broker)
    _kill_unnoted(folder)
    for _ in range(_REMOVE_ATTEMPTS):  # The network ends by itself, and writes while it does.
        shutil.rmtree(root, ignore_errors=True)
        if not root.exists():
            return


def _kill_unnoted(folder: "ClusterFolder") -> None:
    """Brokers whose starter was gone before it had written down all of them."""
    from tidelog.lab.processes import identify, send_signal  # noqa: PLC0415

    for broker_id in folder.broker_ids():
        try:
            pid = int(folder.pid_file(broker_id).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        process = identify(pid)
        # The id may be another's by now.
        if process is not None and str(folder.properties_file(broker_id)) in _command_of(pid):
            send_signal(process, 9)


def _command_of(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        pass  # A system without /proc, or the process has ended.
    try:
        asked = subprocess.run(
            ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
        )
    except FileNotFoundError:
        return ""
    return os.fsdecode(asked.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
