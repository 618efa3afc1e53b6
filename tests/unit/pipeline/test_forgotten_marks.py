"""Which micro-batch of a checkpoint may have been begun, and when (X2)."""

import json
from pathlib import Path

import pytest

from tidelog.pipeline.forgotten_marks import Planned, planned_in, query_in

AT_MS = 1_700_000_000_000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Micro-batches 9 and 10 are planned, and 9 is done."""
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for number in (9, 10):
        planned = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": AT_MS + number})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{planned}\n{{}}\n", "utf-8")
        (tmp_path / "offsets" / f".{number}.crc").touch()
    (tmp_path / "commits" / "9").write_text("v1\n{}\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_what_is_planned_and_not_done_is_found(checkpoint: Path, scheme: str) -> None:
    assert planned_in(f"{scheme}{checkpoint}/") == Planned(10, AT_MS + 10)


def test_what_is_done_is_not(checkpoint: Path) -> None:
    (checkpoint / "commits" / "10").touch()
    assert planned_in(str(checkpoint)) is None


@pytest.mark.parametrize("text", ["", "v1", "v1\nnothing\n", "v1\n[]\n", "v1\n{}\n", "\xff\n\n"])
def test_what_cannot_be_read_is_left_to_spark(checkpoint: Path, text: str) -> None:
    (checkpoint / "offsets" / "10").write_bytes(text.encode("latin-1"))
    assert planned_in(str(checkpoint)) is None


@pytest.mark.parametrize("place", ["/nowhere/at-all", "odd://host/path", "file://"])
def test_a_checkpoint_that_is_not_there_yet_has_nothing(place: str) -> None:
    assert planned_in(place) is None


def test_a_query_is_known_by_its_id(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text('{"id":"c0de"}', "utf-8")
    assert query_in(f"file:{checkpoint}/") == "c0de"


def test_a_query_that_was_never_started_has_none(checkpoint: Path) -> None:
    assert query_in(str(checkpoint)) is None
