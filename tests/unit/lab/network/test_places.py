"""Where files of a network lie, and names of its socket that the kernel takes."""

import tempfile
from pathlib import Path

import pytest

from tidelog.lab.network.places import NetworkFolder

# What macOS takes, which is less than Linux does.
SOCKET_NAME_MAX_BYTES = 103


def test_short_name_is_used_as_it_is() -> None:
    folder = NetworkFolder(Path("/tmp/tidelog"))
    with folder.socket_address() as address:
        assert address == "/tmp/tidelog/network.sock" == str(folder.socket_file)


@pytest.mark.parametrize("is_temporary_long", [False, True])
def test_long_name_is_reached_by_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_temporary_long: bool
) -> None:
    """Wherever temporary files lie: test runners set TMPDIR to a folder of a long name."""
    root = tmp_path / ("ä" * 60)
    root.mkdir()
    if is_temporary_long:
        monkeypatch.setattr(tempfile, "tempdir", str(root))
    folder = NetworkFolder(root)
    with folder.socket_address() as address:
        assert len(address.encode()) <= SOCKET_NAME_MAX_BYTES
        Path(address).touch()
        assert folder.socket_file.exists()
    assert not Path(address).parent.exists()
    assert folder.socket_file.exists()
