"""Reads the table of APIs out of `docs/protocol.md`."""

import re
from pathlib import Path
from typing import NamedTuple

from tidelog.wire.api import ApiKey, VersionRange

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"

_ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \| (\d+)-(\d+) \|", re.MULTILINE)


class DocumentedApi(NamedTuple):
    """One row of the table."""

    key: ApiKey
    name: str
    advertised: VersionRange
    served: VersionRange


def documented_apis() -> list[DocumentedApi]:
    """The rows in their order. A row that cannot be read is a row that is missing."""
    rows = _ROW.findall(DOCUMENT.read_text("utf-8"))
    apis = [
        DocumentedApi(
            ApiKey(int(key)),
            name,
            VersionRange(int(advertised_low), int(advertised_high)),
            VersionRange(int(served_low), int(served_high)),
        )
        for key, name, advertised_low, advertised_high, served_low, served_high in rows
    ]
    assert len({api.key for api in apis}) == len(apis), f"{DOCUMENT} lists an API twice"
    return apis
