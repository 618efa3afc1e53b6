"""Run a fuzz target for a while.

    python -m tests.fuzz.run framing|requests|records --seconds 60 [--seed 1]

With atheris the target is guided by coverage. Where atheris does not install, inputs are made by
changing valid ones at random; the seed makes such a run repeatable. A finding is printed as hex and
written to the working folder, and the exit code is 1.
"""

import argparse
import importlib
import importlib.util
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.fuzz.mutations import mutated

NAMES = ("framing", "records", "requests")


class Target(NamedTuple):
    """What to feed, and what to start from."""

    fuzz_one: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


def load(name: str) -> Target:
    """The target in `fuzz_<name>.py`."""
    module = importlib.import_module(f"tests.fuzz.fuzz_{name}")
    return Target(module.fuzz_one, module.seeds)


def main() -> int:
    """Exit 0 if nothing was found, not 0 otherwise."""
    parser = argparse.ArgumentParser(description="Run a fuzz target for a while.")
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-atheris", action="store_true", help="change valid inputs at random")
    arguments = parser.parse_args()
    if arguments.no_atheris or importlib.util.find_spec("atheris") is None:
        return _run_random(load(arguments.target), arguments.seconds, arguments.seed)
    _run_atheris(arguments.target, arguments.seconds, arguments.seed)
    return 0


def _run_random(target: Target, seconds: float, seed: int) -> int:
    chance = random.Random(seed)
    seeds = list(target.seeds())
    end = time.monotonic() + seconds
    runs = 0
    while time.monotonic() < end:
        data = mutated(chance.choice(seeds), seeds, chance)
        try:
            target.fuzz_one(data)
        except Exception:  # noqa: BLE001 - any exception is the finding
            finding = Path(f"finding-{seed}-{runs}.bin")
            finding.write_bytes(data)
            sys.stdout.write(f"{traceback.format_exc()}\n{finding}: {data.hex()}\n")
            return 1
        runs += 1
    sys.stdout.write(f"{runs} inputs, nothing found (seed {seed})\n")
    return 0


def _run_atheris(name: str, seconds: float, seed: int) -> None:
    """Ends the process with atheris's own exit code."""
    import atheris  # noqa: PLC0415 - absent on some machines

    # Only what is imported here is guided by coverage; all of kio would take minutes.
    with atheris.instrument_imports(include=["tidelog"]):
        target = load(name)
    with TemporaryDirectory() as corpus:
        for index, data in enumerate(target.seeds()):
            (Path(corpus) / str(index)).write_bytes(data)
        options = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=4096"]
        atheris.Setup([sys.argv[0], corpus, *options], target.fuzz_one)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
