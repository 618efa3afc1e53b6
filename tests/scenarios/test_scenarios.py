"""Cases worth explaining to a new colleague are still handled as they were explained."""

from pathlib import Path

import pytest

from tests.scenarios.transcript import replay
from tests.scenarios.worlds import TRANSCRIPTS, WORLDS


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_happens(path: Path) -> None:
    told = path.read_text(encoding="utf-8")
    assert replay(told, WORLDS) == told


def test_changed_outcome_is_noticed() -> None:
    told = "cluster brokers=1\nappend leader=1 records=1\n----\nbroker 1: something else\n\n# end\n"
    happens = told.replace("something else", "end=1 high_watermark=1 isr=1")
    assert replay(told, WORLDS) == happens
