"""An archive is where its promises were tried, and nowhere else (X4)."""

from pathlib import Path

import pytest

from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.errors import OptionError


@pytest.mark.parametrize("root", ["hdfs://host/x", "gs://bucket/x", "abfs://c@a/x", "s3a://b/x"])
def test_stores_that_nobody_has_tried_are_refused(root: str) -> None:
    with pytest.raises(OptionError, match=f"an archive cannot be in {root}: it is a folder"):
        ArchiveFiles(root)


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    files = ArchiveFiles(f"file://{tmp_path}")
    assert files.put_new("a/b", "text")
    assert not files.put_new("a/b", "other")
    assert (tmp_path / "a" / "b").read_text() == "text"
    assert files.full_path("a/b") == str(tmp_path / "a" / "b")
