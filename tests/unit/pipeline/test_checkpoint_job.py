"""A checkpoint is of one job (X4)."""

import json
from pathlib import Path

import pytest

from tidelog.pipeline.checkpoint_job import FILE, require_same_job
from tidelog.pipeline.errors import OptionError

BY_KEY = {"pipeline": "dedup", "topic": "orders", "id": "key"}
BY_HEADER = {**BY_KEY, "id": "header:guid"}
REPLAY = {"pipeline": "replay", "topic": "orders"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a job that de-duplicates by key, which has begun a micro-batch."""
    require_same_job(str(tmp_path), BY_KEY)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    return tmp_path


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_the_same_job_goes_on(checkpoint: Path, scheme: str) -> None:
    require_same_job(f"{scheme}{checkpoint}/", dict(reversed(BY_KEY.items())))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (BY_HEADER, "id was key, and is header:guid now"),
        (REPLAY, "pipeline was dedup, and is replay now"),
        ({**BY_KEY, "time": "arrival"}, "time was None, and is arrival now"),
    ],
)
def test_another_job_is_refused(checkpoint: Path, other: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        require_same_job(str(checkpoint), other)
    require_same_job(str(checkpoint), BY_KEY)


def test_what_was_not_begun_may_be_corrected(tmp_path: Path) -> None:
    require_same_job(str(tmp_path / "new"), BY_KEY)
    require_same_job(str(tmp_path / "new"), BY_HEADER)
    assert json.loads((tmp_path / "new" / FILE).read_text("utf-8")) == BY_HEADER


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_a_checkpoint_of_nobody_is_taken(checkpoint: Path, text: str | None) -> None:
    (checkpoint / FILE).unlink() if text is None else (checkpoint / FILE).write_text(text, "utf-8")
    require_same_job(str(checkpoint), BY_HEADER)
    with pytest.raises(OptionError):
        require_same_job(str(checkpoint), BY_KEY)


@pytest.mark.parametrize("place", ["odd://host/path", "/proc/nowhere", ""])
def test_what_cannot_be_written_is_left_to_spark(place: str) -> None:
    require_same_job(place, BY_KEY)
