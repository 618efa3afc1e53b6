"""How to call tidelog again, for hints that can be copied as they are."""

import shlex
import shutil
import sys
from pathlib import Path

from tidelog.lab.folder import default_data_folder


def program() -> str:
    """tidelog as it was called, if its name alone would not do."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{Path(sys.executable).name} -m tidelog"
    found = shutil.which("tidelog")
    if found is not None and Path(found).resolve() == called.resolve():
        return "tidelog"
    return shlex.quote(sys.argv[0])


def command_for(name: str, data_folder: Path) -> str:
    """A command on the same data folder."""
    is_default = data_folder == default_data_folder()
    target = "" if is_default else f" --data {shlex.quote(str(data_folder))}"
    return f"{program()} {name}{target}"
