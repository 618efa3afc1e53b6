"""Regular expressions of RE2, the dialect in which consumers subscribe to topics, as trees.

RE2 has everything that can be matched by looking at each character once: sets, groups, choices,
repetitions, anchors, flags. It has no references back and no looking around; whoever asks for them,
or for a repetition beyond REPEATS_MAX, is told that this is no expression. (Python's `re` has them,
and can take hours over a short expression. So it is not used.)

`patterns.py` matches what is parsed here.
"""

from dataclasses import dataclass
from string import hexdigits
from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused

REPEATS_MAX: Final = 1_000
DEPTH_MAX: Final = 100

Range = tuple[str, str]

_DIGITS: Final[tuple[Range, ...]] = (("0", "9"),)
_LETTERS: Final[tuple[Range, ...]] = (("a", "z"), ("A", "Z"))
_WORD: Final[tuple[Range, ...]] = (*_DIGITS, *_LETTERS, ("_", "_"))
_SPACES: Final[tuple[Range, ...]] = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_ANY: Final = chr(0x10FFFF)
_PERL: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACES}
_POSIX: Final[dict[str, tuple[Range, ...]]] = {
    "alnum": (*_DIGITS, *_LETTERS),
    "alpha": _LETTERS,
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": _DIGITS,
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": _WORD,
    "xdigit": (*_DIGITS, ("a", "f"), ("A", "F")),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ANCHORS: Final = {"A": "start", "z": "end", "b": "boundary", "B": "within"}
_FLAGS: Final = frozenset("imsU")


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character, of `ranges` or of none of them."""

    ranges: tuple[Range, ...]
    is_negated: bool = False
    ignores_case: bool = False

    def holds(self, character: str) -> bool:
        spellings: tuple[str, ...] = (character,)
        if self.ignores_case:
            spellings = (character, character.lower(), character.upper())
        found = any(low <= one <= high for one in spellings for low, high in self.ranges)
        return found != self.is_negated


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place between characters: `start`, `end`, `boundary` of a word, or `within` one."""

    place: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    least: int
    most: int | None


Node = OneOf | Anchor | Sequence | Choice | Repeat


def parse(expression: str) -> Node:
    """Raises RequestRefused with INVALID_REGULAR_EXPRESSION."""
    parser = _Parser(expression)
    node = parser.choice(depth=0)
    if not parser.is_at_end:
        raise parser.refused("unmatched )")
    return node


class _Parser:
    """Walks along an expression; the flags are those of the group that it is in."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._flags: frozenset[str] = frozenset()

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def refused(self, reason: str) -> RequestRefused:
        return RequestRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{self._text}` is not a valid regular expression: {reason}.",
        )

    def choice(self, depth: int) -> Node:
        """Everything up to the end of the group."""
        if depth > DEPTH_MAX:
            raise self.refused("nested too deeply")
        options = [self._sequence(depth)]
        while self._takes("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.is_at_end and self._text[self._at] not in "|)":
            parts += self._quoted() if self._takes("\\Q") else [self._repeated(depth)]
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, depth: int) -> Node:
        part = self._single(depth)
        times = self._times()
        while times is not None:
            self._takes("?")
            part = Repeat(part, *times)
            times = self._times()
            if times is not None:
                raise self.refused("invalid nested repetition operator")
        return part

    def _single(self, depth: int) -> Node:
        character = self._next()
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._set()
        if character == "\\":
            return self._escape()
        if character in "*+?":
            raise self.refused("missing argument to repetition operator")
        return self._plain(character)

    def _plain(self, character: str) -> Node:
        if character == ".":
            return OneOf(() if "s" in self._flags else (("\n", "\n"),), is_negated=True)
        place = {"^": "start", "$": "end"}.get(character)
        return self._literal(character) if place is None else Anchor(place)

    def _literal(self, character: str) -> OneOf:
        return OneOf(((character, character),), ignores_case="i" in self._flags)

    def _quoted(self) -> list[Node]:
        """What follows \\Q, up to \\E or to the end, as it stands."""
        end = self._text.find("\\E", self._at)
        text = self._text[self._at : end if end >= 0 else len(self._text)]
        self._at += len(text) + (2 if end >= 0 else 0)
        return [self._literal(character) for character in text]

    def _group(self, depth: int) -> Node:
        outer = self._flags
        if self._takes("?") and not (self._takes("P<") or self._takes("<")):
            if self._ends_with_flags():
                return Sequence(())
        elif self._text[self._at - 1] == "<":
            self._name()
        node = self.choice(depth + 1)
        if not self._takes(")"):
            raise self.refused("missing closing )")
        self._flags = outer
        return node

    def _ends_with_flags(self) -> bool:
        """Read `i-s:` or `i-s)`: flags for this group, or for the rest of the one around it."""
        wanted, is_on = set(self._flags), True
        while True:
            character = self._next()
            if character in ":)":
                self._flags = frozenset(wanted)
                return character == ")"
            if character == "-" and is_on:
                is_on = False
            elif character not in _FLAGS:
                raise self.refused("invalid or unsupported Perl syntax")
            elif is_on:
                wanted.add(character)
            else:
                wanted.discard(character)

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : end]
        if end < 0 or not name.isascii() or not name.isidentifier():
            raise self.refused("invalid named capture")
        self._at = end + 1

    def _times(self) -> tuple[int, int | None] | None:
        """How often what stands before is repeated; None if nothing says so."""
        if self.is_at_end:
            return None
        match self._text[self._at]:
            case "*":
                times: tuple[int, int | None] = 0, None
            case "+":
                times = 1, None
            case "?":
                times = 0, 1
            case "{":
                return self._counted()
            case _:
                return None
        self._at += 1
        return times

    def _counted(self) -> tuple[int, int | None] | None:
        """`{2}`, `{2,}` or `{2,5}`; a brace that is none of these stands for itself."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at = end + 1
        times = int(least), int(most) if most else None if comma else int(least)
        bound = times[0] if times[1] is None else times[1]
        if max(times[0], bound) > REPEATS_MAX or bound < times[0]:
            raise self.refused("invalid repeat count")
        return times

    def _escape(self) -> Node:
        character = self._next()
        if character in _ANCHORS:
            return Anchor(_ANCHORS[character])
        ranges, is_negated = self._class_of(character)
        if ranges is not None:
            return OneOf(ranges, is_negated)
        return self._literal(self._escaped(character))

    def _class_of(self, character: str) -> tuple[tuple[Range, ...] | None, bool]:
        """What \\d, \\W and the like stand for; no ranges if it is none of them."""
        return _PERL.get(character.lower()), character.isupper()

    def _escaped(self, character: str) -> str:
        """The character that `character` after a backslash stands for."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character.isalnum() or ord(character) >= 0x80:
            raise self.refused(f"invalid escape sequence \\{character}")
        return character

    def _hexadecimal(self) -> str:
        is_long = self._takes("{")
        end = self._text.find("}", self._at) if is_long else self._at + 2
        digits = self._text[self._at : max(end, 0)]
        self._at = end + is_long
        if not digits or any(digit not in hexdigits for digit in digits):
            raise self.refused("invalid escape sequence")
        if int(digits, 16) > ord(_ANY) or (len(digits) < 2 and not is_long):
            raise self.refused("invalid escape sequence")
        return chr(int(digits, 16))

    def _set(self) -> OneOf:
        is_negated = self._takes("^")
        ranges: list[Range] = []
        is_first = True
        while is_first or not self._takes("]"):
            ranges += self._of_set()
            is_first = False
        return OneOf(tuple(ranges), is_negated, "i" in self._flags)

    def _of_set(self) -> list[Range]:
        """One character, range or class in brackets."""
        if self._takes("[:"):
            return self._posix()
        low = self._next()
        if low == "\\":
            character = self._next()
            ranges, is_negated = self._class_of(character)
            if ranges is not None:
                return _complement(ranges) if is_negated else list(ranges)
            low = self._escaped(character)
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return [(low, low)]
        self._at += 1
        high = self._next()
        if high == "\\":
            high = self._escaped(self._next())
        if high < low:
            raise self.refused("invalid character class range")
        return [(low, high)]

    def _posix(self) -> list[Range]:
        end = self._text.find(":]", self._at)
        name = self._text[self._at : max(end, 0)]
        ranges = _POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise self.refused("invalid character class range")
        self._at = end + 2
        return _complement(ranges) if name.startswith("^") else list(ranges)

    def _takes(self, text: str) -> bool:
        """Whether `text` comes next; then it is behind us."""
        found = self._text.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found

    def _next(self) -> str:
        if self.is_at_end:
            raise self.refused("it ends too early")
        self._at += 1
        return self._text[self._at - 1]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _complement(ranges: tuple[Range, ...]) -> list[Range]:
    """All characters that are not in `ranges`, of which none overlap."""
    gaps: list[Range] = []
    low = 0
    for start, end in sorted(ranges):
        if ord(start) > low:
            gaps.append((chr(low), chr(ord(start) - 1)))
        low = ord(end) + 1
    return [*gaps, (chr(low), _ANY)]
