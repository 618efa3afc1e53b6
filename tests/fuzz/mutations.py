"""Changes that turn a valid input into one that a decoder has not been written for."""

import random
from collections.abc import Sequence

# Lengths, counts and varints that programs get wrong.
_INTERESTING = [
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x80\x01",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
]

CHANGES_MAX = 4


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """`data` with one to CHANGES_MAX random changes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, CHANGES_MAX)):
        position = chance.randrange(len(changed) + 1)
        match chance.randrange(7):
            case 0 if position < len(changed):
                changed[position] ^= 1 << chance.randrange(8)
            case 1:
                del changed[position : position + chance.randint(1, 8)]
            case 2:
                changed[position:position] = chance.randbytes(chance.randint(1, 8))
            case 3:
                replacement = chance.choice(_INTERESTING)
                changed[position : position + len(replacement)] = replacement
            case 4:
                del changed[position:]
            case 5:
                other = chance.choice(others)
                changed[position:] = other[chance.randrange(len(other) + 1) :]
            case _:
                changed[position:position] = changed[position : position + chance.randint(1, 40)]
    return bytes(changed)
