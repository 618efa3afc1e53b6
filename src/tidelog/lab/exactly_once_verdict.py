"""Whether a partition of the output is what was made of the same partition of the input."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_EXAMPLES_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformVerdict:
    """How many records are not as they should be; `examples` says which."""

    partition: int
    expected: int
    found: int
    lost: int
    repeated: int
    reordered: int
    unexpected: int
    examples: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.lost + self.repeated + self.reordered + self.unexpected


def judge_transform(
    partition: int, *, expected: Sequence[bytes], found: Sequence[bytes]
) -> TransformVerdict:
    """`expected` has no value twice. A record is out of order if a later one came before it."""
    place = {value: number for number, value in enumerate(expected)}
    counts = Counter(found)
    lost = [value for value in expected if not counts[value]]
    unexpected = [value for value in found if value not in place]
    repeated = [value for value, count in counts.items() if count > 1 and value in place]
    reordered = _out_of_order(place, found)
    examples = [
        *(f"lost: {value!r}" for value in lost[:_EXAMPLES_MAX]),
        *(f"repeated: {value!r}" for value in repeated[:_EXAMPLES_MAX]),
        *(f"out of order: {value!r}" for value in reordered[:_EXAMPLES_MAX]),
        *(f"unexpected: {value!r}" for value in unexpected[:_EXAMPLES_MAX]),
    ]
    return TransformVerdict(
        partition=partition,
        expected=len(expected),
        found=len(found),
        lost=len(lost),
        repeated=sum(counts[value] - 1 for value in repeated),
        reordered=len(reordered),
        unexpected=len(unexpected),
        examples=tuple(examples),
    )


def _out_of_order(place: dict[bytes, int], found: Sequence[bytes]) -> list[bytes]:
    """First copies that stand behind a later record; a second copy is repeated, not reordered."""
    furthest = -1
    seen: set[bytes] = set()
    late = []
    for value in found:
        if value not in place or value in seen:
            continue
        seen.add(value)
        if place[value] < furthest:
            late.append(value)
        furthest = max(furthest, place[value])
    return late
