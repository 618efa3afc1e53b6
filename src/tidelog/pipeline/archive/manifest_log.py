"""The manifest as files: one for each commit, and now and then one with all of it.

    _manifest/00000000000000000000.json            what the archive is, who began
    _manifest/00000000000000000001.json            chunks that came, chunks that went
    _manifest/00000000000000000064.snapshot.json   the same as all up to 64

To make the file of the next version is the one step by which anything counts (decision 0017). It
fails if the file is there: then somebody else writes, and who finds that out has nothing to say any
more. A run begins with a commit of its own. From there on no other run's commit can succeed, and
whatever files they had written without a commit can be removed.

Commits before a snapshot are removed when they are older than `KEPT_MS`. Files that a commit takes
out of the manifest stay as long as the commit does: a reader may be at work on them.
"""

import re
import time
from collections.abc import Callable
from typing import Final

from tidelog.pipeline.archive.errors import ArchiveError, ArchiveTaken
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.manifest import (
    ArchiveInfo,
    Chunk,
    Commit,
    Manifest,
    applied,
    commit_of,
    commit_text,
    first_manifest,
    snapshot_of,
    snapshot_text,
)

FOLDER: Final = "_manifest"
SNAPSHOT_EVERY: Final = 64
KEPT_MS: Final = 60 * 60 * 1000

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_SNAPSHOT: Final = re.compile(r"(\d{20})\.snapshot\.json")
# A snapshot may take the place of commits between looking which there are and reading them.
_READ_ATTEMPTS: Final = 3


class ManifestLog:
    """The history of one archive, in a folder that may be the archive's own."""

    def __init__(self, files: ArchiveFiles, *, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._now_ms = now_ms

    def load(self) -> Manifest | None:
        """As it is now; None if there is no archive. Raises ArchiveError."""
        for attempt in range(_READ_ATTEMPTS):
            try:
                return self._loaded()
            except ArchiveError:
                if attempt == _READ_ATTEMPTS - 1:
                    raise
        raise AssertionError

    def commit(
        self,
        *,
        version: int,
        run: str,
        info: ArchiveInfo,
        added: tuple[Chunk, ...],
        removed: tuple[Chunk, ...],
    ) -> Commit:
        """Let it count. Raises ArchiveTaken if somebody else has made this version."""
        made = Commit(
            version=version,
            run=run,
            committed_at_ms=self._now_ms(),
            info=info,
            added=added,
            removed=removed,
        )
        if not self._files.put_new(_commit_path(version), commit_text(made)):
            raise ArchiveTaken(self._files.root)
        commits, snapshots = self._versions()
        if max(commits | snapshots) > version:
            # Of one that slept so long that its next version was removed again. Nobody reads this.
            raise ArchiveTaken(self._files.root)
        return made

    def read(self, version: int) -> Commit:
        return commit_of(self._files.read_text(_commit_path(version)))

    def tidy(self, manifest: Manifest) -> set[str]:
        """Write a snapshot if it is time; remove commits that an older one made superfluous.

        Returns the files that those had taken out of the manifest: nobody reads them any more.
        """
        superfluous: set[str] = set()
        commits, snapshots = self._versions()
        newest = max(snapshots, default=0)
        if manifest.version - newest >= SNAPSHOT_EVERY:
            self._files.put(_snapshot_path(manifest.version), snapshot_text(manifest))
        for version in sorted(commits):
            # The last is what the next one is checked against.
            if version >= newest or not self._is_old(version):
                break
            superfluous |= _removed_files(self.read(version))
            self._files.delete(_commit_path(version))
        for version in snapshots - {newest}:
            self._files.delete(_snapshot_path(version))
        return superfluous - {each.path for each in manifest.files()} if superfluous else set()

    def recently_removed(self) -> set[str]:
        """Files that somebody who began to read a while ago may still need."""
        commits, _ = self._versions()
        return {
            path
            for version in commits
            if not self._is_old(version)
            for path in _removed_files(self.read(version))
        }

    def _is_old(self, version: int) -> bool:
        return self.read(version).committed_at_ms < self._now_ms() - KEPT_MS

    def _loaded(self) -> Manifest | None:
        commits, snapshots = self._versions()
        if not commits and not snapshots:
            return None
        if snapshots:
            manifest = snapshot_of(self._files.read_text(_snapshot_path(max(snapshots))))
        else:
            manifest = first_manifest(self.read(0))
        for version in sorted(each for each in commits if each > manifest.version):
            manifest = applied(manifest, self.read(version))
        return manifest

    def _versions(self) -> tuple[set[int], set[int]]:
        names = [each.path.rpartition("/")[2] for each in self._files.below(FOLDER)]
        commits = {int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))}
        snapshots = {int(found[1]) for name in names if (found := _SNAPSHOT.fullmatch(name))}
        return commits, snapshots


def manifest_of(root: str, manifest_root: str | None = None) -> Manifest:
    """Of an archive, as it is now. Raises ArchiveError if there is none."""
    files = ArchiveFiles(manifest_root or root)
    found = ManifestLog(files, now_ms=wall_clock_ms).load()
    if found is None:
        raise ArchiveError(f"there is no archive in {root}: it has no {FOLDER}")
    return found


def wall_clock_ms() -> int:
    return int(time.time() * 1000)


def _removed_files(commit: Commit) -> set[str]:
    return {file.path for chunk in commit.removed for file in chunk.files}


def _commit_path(version: int) -> str:
    return f"{FOLDER}/{version:020}.json"


def _snapshot_path(version: int) -> str:
    return f"{FOLDER}/{version:020}.snapshot.json"
