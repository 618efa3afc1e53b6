"""Runs a recipe of examples/delivery and kills itself at an exact point.

    python -m tests.integration.delivery_victim RECIPE FUNCTION NUMBER ARGUMENTS...

FUNCTION is `process` or `commit`: after the NUMBER-th call of it has returned, this process is gone
by SIGKILL, before any other line of the recipe runs. With `-` for both, nobody is killed.
"""

import importlib.util
import os
import runpy
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType

from confluent_kafka import Producer

RECIPES = Path(__file__).parents[2] / "examples" / "delivery"


def fatal(function: Callable[..., None], number: int) -> Callable[..., None]:
    """`function`, the last thing that happens in its `number`-th call."""
    calls = count(1)

    def call(*arguments: object) -> None:
        function(*arguments)
        if next(calls) == number:
            for argument in arguments:
                if isinstance(argument, Producer):
                    argument.flush()  # So that there is something in the log to be aborted.
            os.kill(os.getpid(), signal.SIGKILL)

    return call


def load(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def main() -> None:
    recipe, name, number, *arguments = sys.argv[1:]
    path = RECIPES / f"{recipe}.py"
    sys.argv = [str(path), *arguments]
    if name == "-":
        runpy.run_path(str(path), run_name="__main__")
        return
    module = load(path)
    setattr(module, name, fatal(getattr(module, name), int(number)))
    module.main()


if __name__ == "__main__":
    main()
