"""O5: a short, repeatable run of every fuzz target; `tests.fuzz.run` is for the long ones."""

import random

import pytest

from tests.fuzz.mutations import mutated
from tests.fuzz.run import NAMES, load

RUNS = 2_000


@pytest.mark.parametrize("name", NAMES)
def test_valid_inputs_are_handled(name: str) -> None:
    target = load(name)
    for data in target.seeds():
        target.fuzz_one(data)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_inputs_are_handled_or_refused(name: str) -> None:
    target = load(name)
    inputs = list(target.seeds())
    chance = random.Random(name)
    for _ in range(RUNS):
        target.fuzz_one(mutated(chance.choice(inputs), inputs, chance))


def test_same_seed_makes_the_same_inputs() -> None:
    def inputs() -> list[bytes]:
        chance = random.Random(5)
        return [mutated(b"some input", [b"another"], chance) for _ in range(50)]

    assert inputs() == inputs()
