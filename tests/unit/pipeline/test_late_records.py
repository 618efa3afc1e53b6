"""By which watermark records are late, as a checkpoint has it."""

import json
from pathlib import Path

import pytest

from tidelog.pipeline.late_records import watermark_in


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_a_micro_batch_has_its_watermark_in_the_checkpoint(tmp_path: Path, form: str) -> None:
    metadata = json.dumps({"batchWatermarkMs": 17, "batchTimestampMs": 1, "conf": {}})
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(f'v1\n{metadata}\n{{"orders":{{"0":3}}}}', "utf-8")
    assert watermark_in(form.format(tmp_path), 4) == 17


@pytest.mark.parametrize("written", ["", "v1", "v1\nnot json\n{}", "v1\n{}\n{}"])
def test_where_it_cannot_be_read_it_is_not_known(tmp_path: Path, written: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(written, "utf-8")
    assert watermark_in(str(tmp_path), 0) is None
    assert watermark_in(str(tmp_path), -1) is None
    assert watermark_in("nosuch://host/checkpoint", 0) is None
