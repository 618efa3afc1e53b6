"""Files of a network in the cluster's folder, and how to get at its socket.

DIR/
  network.json    its routes, written by whoever starts it
  network.sock    where it is steered; left behind by one that was killed
  network.lock    held by the process for as long as it runs
  network.log     what it has to complain about

The name of a Unix socket has to fit into a hundred bytes, which a folder's name may be longer than.
It is then reached through a link of a short name, that is gone when the socket is open. The link is
in /tmp: TMPDIR, where test runners point it into their own folders, may be just as long.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TIED: Final = "--tied"
"""The option with which the process ends when its standard input does."""
# 108 on Linux, 104 on macOS, the zero at its end included.
_SOCKET_NAME_MAX_BYTES: Final = 103
_LINKS_FOLDER: Final = "/tmp"


@dataclass(frozen=True, slots=True)
class NetworkFolder:
    """Names of files in the cluster's folder `root`."""

    root: Path

    @property
    def routes_file(self) -> Path:
        return self.root / "network.json"

    @property
    def socket_file(self) -> Path:
        return self.root / "network.sock"

    @property
    def lock_file(self) -> Path:
        return self.root / "network.lock"

    @property
    def output_file(self) -> Path:
        return self.root / "network.log"

    @contextmanager
    def socket_address(self) -> Iterator[str]:
        """A name of the socket that `bind` and `connect` take, while in the context."""
        path = str(self.socket_file)
        if len(os.fsencode(path)) <= _SOCKET_NAME_MAX_BYTES:
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="tidelog-", dir=_LINKS_FOLDER) as short:
            link = Path(short) / "n"
            link.symlink_to(self.root.absolute())
            yield str(link / self.socket_file.name)
