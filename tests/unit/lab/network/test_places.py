"""Where files of a network lie, and names of its socket that the kernel takes."""

from pathlib import Path

from tidelog.lab.network.places import NetworkFolder

# What macOS takes, which is less than Linux does.
SOCKET_NAME_MAX_BYTES = 103


def test_short_name_is_used_as_it_is() -> None:
    folder = NetworkFolder(Path("/tmp/tidelog"))
    with folder.socket_address() as address:
        assert address == "/tmp/tidelog/network.sock" == str(folder.socket_file)


def test_long_name_is_reached_by_a_short_one(tmp_path: Path) -> None:
    root = tmp_path / ("ä" * 60)
    root.mkdir()
    folder = NetworkFolder(root)
    with folder.socket_address() as address:
        assert len(address.encode()) <= SOCKET_NAME_MAX_BYTES
        Path(address).touch()
        assert folder.socket_file.exists()
    assert not Path(address).parent.exists()
    assert folder.socket_file.exists()
