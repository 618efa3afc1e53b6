"""Java's `.properties` text, read by the rules that Kafka's own loader follows.

    # or ! first on a line     a comment, which cannot be continued
    \\ last on a line           the next line, less its leading blanks, goes on
    = or : or blanks           end of the name; blanks around the sign do not count
    \\t \\n \\r \\f \\uXXXX        the usual characters; \\ before any other character is dropped

A name that appears twice keeps its last value, as in Java. Not here: what names mean.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tidelog.base.errors import ConfigError

_BLANKS = " \t\f"
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """The settings in the file at `path`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file in UTF-8") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Names and values in `text`; escapes that are not finished raise ConfigError."""
    parsed: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        parsed[_unescape(name)] = _unescape(value)
    return parsed


def parse_assignment(text: str) -> tuple[str, str]:
    """The name and value of one `--set name=value`. Nothing is an escape on a command line."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ConfigError(f"'{text}' is not of the form name=value")
    return name.strip(), value.strip()


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with their continuations joined; blank lines and comments left out."""
    joined: str | None = None
    # Not splitlines(): Java ends a line at \n, \r and \r\n and nowhere else.
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if joined is None and (not line or line[0] in "#!"):
            continue
        whole = (joined or "") + line
        if _is_continued(line):
            joined = whole[:-1]
        else:
            joined = None
            yield whole
    if joined:
        yield joined


def _is_continued(line: str) -> bool:
    backslash_count = len(line) - len(line.rstrip("\\"))
    return backslash_count % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = _name_end(line)
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in {"=", ":"}:
        value = value[1:].lstrip(_BLANKS)
    return line[:end], value


def _name_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        if text[position] != "\\":
            parts.append(text[position])
            position += 1
        elif text[position + 1 : position + 2] == "u":
            parts.append(_unicode_escape(text, position))
            position += 6
        else:
            escaped = text[position + 1 : position + 2]
            parts.append(_ESCAPES.get(escaped, escaped))
            position += 2
    return "".join(parts)


def _unicode_escape(text: str, position: int) -> str:
    digits = text[position + 2 : position + 6]
    if _HEXADECIMAL.fullmatch(digits) is None:
        raise ConfigError(f"'{text}' holds \\u without four hexadecimal digits")
    return chr(int(digits, 16))
