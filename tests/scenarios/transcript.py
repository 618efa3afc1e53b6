"""The format of a transcript: commands, `----`, what they led to, an empty line.

    # Why this case is worth telling.

    cluster brokers=1,2
    append leader=1 records=4
    ----
    broker 1: end=4 high_watermark=0 isr=1,2

The first command chooses the world. Lines that start with `#` between blocks are for the reader.
`python -m tests.scenarios.update` writes down what happens now; the diff is reviewed like code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Command:
    """A name and its `key=value` pairs."""

    name: str
    values: Mapping[str, str]

    def number(self, key: str) -> int:
        return int(self.values[key])

    def number_or(self, key: str, default: int) -> int:
        return int(self.values.get(key, default))


class World(Protocol):
    """What commands act upon."""

    def perform(self, command: Command) -> list[str]:
        """What is seen while `command` happens."""
        ...

    def state(self) -> list[str]:
        """What is true at the end of a block."""
        ...


def parse(line: str) -> Command:
    name, *pairs = line.split()
    return Command(name, dict(pair.split("=", 1) for pair in pairs))


def replay(text: str, worlds: Mapping[str, Callable[[Command], World]]) -> str:
    """The same transcript, with what its commands lead to now."""
    written: list[str] = []
    block: list[Command] = []
    world: World | None = None
    is_outcome = False
    for line in text.splitlines():
        if not line:
            is_outcome = False
        if is_outcome:
            continue
        written.append(line)
        if line == SEPARATOR:
            if world is None:
                world = worlds[block[0].name](block.pop(0))
            written += _run(world, block)
            block = []
            is_outcome = True
        elif line and not line.startswith("#"):
            block.append(parse(line))
    assert not block, f"commands without {SEPARATOR}: {block}"
    return "\n".join(written) + "\n"


def _run(world: World, block: list[Command]) -> list[str]:
    seen = [line for command in block for line in world.perform(command)]
    return [*seen, *world.state()]
