"""The history of an archive as files: one commit at a time, and who is too late hears so."""

import itertools
from pathlib import Path

import pytest

from tests.unit.pipeline.archive.test_manifest import INFO, chunk
from tidelog.pipeline.archive.errors import ArchiveError, ArchiveTaken
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.manifest import Chunk, Manifest, applied, first_manifest
from tidelog.pipeline.archive.manifest_log import FOLDER, KEPT_MS, SNAPSHOT_EVERY, ManifestLog


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> ManifestLog:
    return ManifestLog(ArchiveFiles(str(tmp_path)), now_ms=clock)


def commit(log: ManifestLog, version: int, *added: Chunk, removed: tuple[Chunk, ...] = ()) -> None:
    log.commit(version=version, run=f"run-{version}", info=INFO, added=added, removed=removed)


def test_an_empty_folder_has_no_manifest(log: ManifestLog) -> None:
    assert log.load() is None


def test_what_was_committed_is_loaded(log: ManifestLog) -> None:
    commit(log, 0)
    commit(log, 1, chunk(0, 10))
    commit(log, 2, chunk(10, 20))
    found = log.load()
    assert found is not None
    assert (found.version, found.run) == (2, "run-2")
    assert list(found.all_chunks()) == [chunk(0, 10), chunk(10, 20)]


def test_a_version_is_made_once(log: ManifestLog) -> None:
    commit(log, 0)
    commit(log, 1, chunk(0, 10))
    with pytest.raises(ArchiveTaken, match="only one may write at a time"):
        commit(log, 1, chunk(0, 12))
    found = log.load()
    assert found is not None
    assert list(found.all_chunks()) == [chunk(0, 10)]


def test_half_a_commit_is_never_seen(log: ManifestLog, tmp_path: Path) -> None:
    """Whoever dies while it writes leaves a file of another name."""
    commit(log, 0)
    (tmp_path / FOLDER / ".0123").write_text('{"format": 1, "ver')
    found = log.load()
    assert found is not None
    assert found.version == 0


def test_a_missing_commit_is_said_and_not_passed_over(log: ManifestLog, tmp_path: Path) -> None:
    for version in range(3):
        commit(log, version)
    (tmp_path / FOLDER / f"{1:020}.json").unlink()
    with pytest.raises(ArchiveError, match="commit 2 does not follow 0"):
        log.load()


def grown(log: ManifestLog, count: int) -> Manifest:
    """Archives two chunks and merges them, again and again."""
    manifest = first_manifest(log.commit(version=0, run="r", info=INFO, added=(), removed=()))
    starts = itertools.count(0, 10)
    for version in range(1, count):
        start = next(starts)
        made = log.commit(
            version=version, run="r", info=INFO, added=(chunk(start, start + 10),), removed=()
        )
        manifest = applied(manifest, made)
        log.tidy(manifest)
    return manifest


def test_a_snapshot_takes_the_place_of_old_commits(
    log: ManifestLog, clock: Clock, tmp_path: Path
) -> None:
    grown(log, SNAPSHOT_EVERY + 2)
    clock.now_ms += KEPT_MS + 1
    manifest = log.load()
    assert manifest is not None
    log.tidy(manifest)
    names = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    assert len(names) < 5
    assert log.load() == manifest


def test_who_slept_through_an_hour_cannot_commit(log: ManifestLog, clock: Clock) -> None:
    grown(log, SNAPSHOT_EVERY + 2)
    clock.now_ms += KEPT_MS + 1
    manifest = log.load()
    assert manifest is not None
    log.tidy(manifest)
    with pytest.raises(ArchiveTaken):
        commit(log, 5, chunk(50, 60))
    assert log.load() == manifest


def test_files_that_were_merged_away_stay_while_somebody_may_read_them(
    log: ManifestLog, clock: Clock
) -> None:
    parts, whole = (chunk(0, 10), chunk(10, 20)), chunk(0, 20)
    commit(log, 0, *parts)
    commit(log, 1, whole, removed=parts)
    assert log.recently_removed() == {file.path for part in parts for file in part.files}
    clock.now_ms += KEPT_MS + 1
    assert log.recently_removed() == set()
