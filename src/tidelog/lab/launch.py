"""How a broker process is started: its command, the malloc settings and open files it needs.

glibc reads the settings once, when a process starts, so a broker that was started without them
starts itself again. By default every large buffer would be mapped, zeroed by the kernel and
unmapped again, which costs a Fetch 4.5 times its CPU.

Most systems let a process have 1,024 open files unless it asks for more. Every partition and every
connection is one, and a broker without any left cannot tell that from a disk that fails.

Nothing may be imported here that takes time: this runs in a process that is about to be replaced.
"""

import os
import resource
import sys
from collections.abc import Mapping

MALLOC_SETTINGS: Mapping[str, str] = {
    "MALLOC_TRIM_THRESHOLD_": "536870912",
    "MALLOC_MMAP_THRESHOLD_": "536870912",
    "MALLOC_TOP_PAD_": "33554432",
}
# Says that the settings were applied, so that an environment that loses them cannot make a loop.
GUARD = "TIDELOG_LAUNCHED"
# Where the system names no limit; Linux and macOS refuse to be asked for more than they can have.
OPEN_FILES_WANTED = 1_048_576


def broker_command(config_file: str) -> list[str]:
    """The command line of a broker under this Python."""
    # -P: a folder named tidelog where the command was typed must not be taken for the package.
    return [sys.executable, "-P", "-m", "tidelog", "broker", "--config", config_file]


def broker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with the malloc settings in it; those it has already are the operator's."""
    return {**MALLOC_SETTINGS, **environment, GUARD: "1"}


def needs_relaunch(environment: Mapping[str, str]) -> bool:
    """Whether a broker started with `environment` has to start itself again."""
    if GUARD in environment:
        return False
    return any(name not in environment for name in MALLOC_SETTINGS)


def relaunch_if_needed() -> None:
    """Replace this process by the same one with malloc settings; returns if it has them."""
    if not sys.platform.startswith("linux") or not sys.executable:
        return
    if needs_relaunch(os.environ):
        arguments = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, arguments, broker_environment(os.environ))


def allow_open_files() -> None:
    """Raise the limit on open files as far as this process may, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else hard
    while soft != resource.RLIM_INFINITY and wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            wanted //= 2  # macOS has a limit of its own below the one it tells.
        else:
            return
