"""Nobody is signalled who only happens to have the same process id."""

import os
import signal
import socket
import subprocess
import sys

from tidelog.lab.processes import (
    ProcessIdentity,
    identify,
    is_running,
    send_signal,
    wait_for_end,
)


def test_process_is_itself() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert me == identify(os.getpid())
    assert is_running(me)


def test_process_with_another_start_is_somebody_else() -> None:
    stranger = ProcessIdentity(os.getpid(), "another start")
    assert not is_running(stranger)
    # Would end this test if it were sent.
    assert not send_signal(stranger, signal.SIGKILL)


def test_id_that_nobody_has_is_nobody() -> None:
    # Above what /proc/sys/kernel/pid_max can be set to.
    assert identify(2**22 + 1) is None


def test_somebody_else_counts_as_ended() -> None:
    assert wait_for_end(ProcessIdentity(os.getpid(), "another start"), timeout_s=0)


def test_process_that_runs_on_has_not_ended() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert not wait_for_end(me, timeout_s=0)


def test_corpse_that_was_not_buried_is_not_running() -> None:
    child = os.posix_spawn("/bin/true", ["true"], os.environ)
    try:
        # Waits until it has ended, and leaves it there.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert identify(child) is None
    finally:
        os.waitpid(child, 0)


_LISTENER = """
import socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
for _ in range(50):
    threading.Thread(target=time.sleep, args=(60,)).start()
print(listener.getsockname()[1], flush=True)
time.sleep(60)
"""


def test_who_has_ended_holds_no_port() -> None:
    """Its threads do not die all at once, and the last of them closes what it has open."""
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", _LISTENER], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            process = identify(child.pid)
            assert process is not None
            send_signal(process, signal.SIGKILL)
            while is_running(process):
                continue  # Ends: nothing survives SIGKILL.
            with socket.create_server(("127.0.0.1", port)):
                pass
