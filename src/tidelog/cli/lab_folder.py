"""Where a lab keeps its cluster: a folder that is named, or one that goes away if all is well."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.base.errors import ConfigError
from tidelog.lab.errors import LabError


class LabFolder:
    """`is_kept` may become true until the end."""

    def __init__(self, path: Path, *, is_kept: bool) -> None:
        self.path = path
        self.is_kept = is_kept


@contextmanager
def lab_folder(data: Path | None) -> Iterator[LabFolder]:
    """The folder `data`, which must be empty, or a new one."""
    if data is not None:
        path = data.expanduser().absolute()
        if path.exists() and any(path.iterdir()):
            raise ConfigError(f"--data is {path}, which is not empty; name another")
        path.mkdir(parents=True, exist_ok=True)
        yield LabFolder(path, is_kept=True)
        return
    folder = LabFolder(Path(tempfile.mkdtemp(prefix="tidelog-lab.")), is_kept=False)
    try:
        yield folder
    except LabError:
        folder.is_kept = True
        raise
    finally:
        if not folder.is_kept:
            shutil.rmtree(folder.path, ignore_errors=True)
