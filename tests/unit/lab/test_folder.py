"""The data folder is the same wherever the command is typed."""

from pathlib import Path

import pytest

from tidelog.lab.folder import ClusterFolder, default_data_folder


def test_default_folder_is_in_the_home_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_data_folder() == Path("/home/ada/.local/share/tidelog")


def test_default_folder_follows_the_desktop_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_data_folder() == Path("/data/tidelog")


def test_brokers_do_not_share_files() -> None:
    folder = ClusterFolder(Path("/data"))
    assert folder.log_dir(1) != folder.log_dir(2)
    assert folder.output_file(1).parent == folder.broker_folder(1)


def test_folder_knows_the_brokers_it_has_had_and_their_replicas(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    assert ClusterFolder(tmp_path / "absent").broker_ids() == []
    for name in ("demo-0", "demo-11", "a.b-2", ".tidelog"):
        (folder.log_dir(2) / name).mkdir(parents=True)
    (tmp_path / "broker-x").mkdir()
    folder.broker_folder(10).mkdir()
    assert folder.broker_ids() == [2, 10]
    assert (folder.replica_count(2), folder.replica_count(10)) == (3, 0)
