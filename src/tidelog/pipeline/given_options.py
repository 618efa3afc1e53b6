"""Options of a source or a sink as Spark hands them on: texts, by their names in lower case.

What is the same for both: flags, and slips. An option that nobody knows is ignored, as Spark does
with those of other sources, unless it looks like a known one with a slip in it: nobody would find
out why it has no effect.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.kafka_settings import PREFIX

_SLIP: Final = 0.85
"""How alike two names are if one is a slip of the other; 1 is equal."""


def in_lower_case(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def flag(lowered: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Raises OptionError if it is neither true nor false."""
    text = lowered.get(name.lower())
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise OptionError(f"{name} is {text!r} but must be true or false")
    return text.lower() == "true"


def require_no_slips(lowered: Mapping[str, str], known: Iterable[str]) -> None:
    """Raises OptionError for a name that is nearly one of the known ones."""
    by_lower = {name.lower(): name for name in known}
    for name in lowered:
        if name in by_lower or name.startswith(PREFIX):
            continue
        near = difflib.get_close_matches(name, by_lower, n=1, cutoff=_SLIP)
        if near:
            raise OptionError(f"{name} is no option; {by_lower[near[0]]} is one")
