"""Fuzz target: the body of a request; the first byte chooses the API and its version."""

from collections.abc import Iterator

from tests.support.decoders import DECODERS, SUPPORTED_VERSIONS, example_body
from tidelog.base.errors import WireError


def fuzz_one(data: bytes) -> None:
    """Anything but a value or WireError is a bug."""
    if not data:
        return
    key, version = SUPPORTED_VERSIONS[data[0] % len(SUPPORTED_VERSIONS)]
    try:
        DECODERS[key](memoryview(data), 1, version)
    except WireError:
        return


def seeds() -> Iterator[bytes]:
    """A valid body for every choice."""
    for choice, (key, version) in enumerate(SUPPORTED_VERSIONS):
        yield bytes([choice]) + example_body(key, version)
