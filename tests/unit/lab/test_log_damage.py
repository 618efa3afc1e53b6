"""Damage that a power cut does, and recovery must find (S6, B3)."""

import random
from pathlib import Path

import pytest

from tests.support.batches import plain_batch
from tidelog.base.ids import Offset, TopicPartition
from tidelog.lab.log_damage import change_bytes, tear_logs
from tidelog.lab.replica_files import stored_batches
from tidelog.records.batch import read_header, stamp
from tidelog.storage.checkpoints import write_offsets
from tidelog.storage.disk import RealDisk
from tidelog.storage.layout import BOOT_ID, LOG, RECOVERY_POINT_CHECKPOINT, file_name

SEEDS = range(50)


def write_logs(log_dir: Path, *topics: str) -> dict[str, Path]:
    """Logs of two batches each, offsets 0 to 2."""
    first, second = plain_batch(1), plain_batch(2)
    stamp(second, 1, read_header(second, 0).batch_length, 0)
    folders = {}
    for topic in topics:
        folders[topic] = log_dir / f"{topic}-0"
        folders[topic].mkdir(parents=True)
        (folders[topic] / file_name(0, LOG)).write_bytes(first + second)
    return folders


def offsets(folder: Path) -> list[int]:
    return [batch.header.base_offset for batch in stored_batches(folder)]


@pytest.mark.parametrize("damage", [tear_logs, change_bytes])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_batch_is_good_no_more(tmp_path: Path, damage: object, seed: int) -> None:
    assert callable(damage)
    folders = write_logs(tmp_path, "hit", "spared")
    assert damage(tmp_path, ["hit"], random.Random(seed)) == 1
    assert offsets(folders["hit"]) == [0]
    assert offsets(folders["spared"]) == [0, 1]


@pytest.mark.parametrize("damage", [tear_logs, change_bytes])
def test_what_was_flushed_is_left_alone(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    folders = write_logs(tmp_path, "hit")
    write_offsets(
        RealDisk(), tmp_path / RECOVERY_POINT_CHECKPOINT, {TopicPartition("hit", 0): Offset(3)}
    )
    assert damage(tmp_path, ["hit"], random.Random(1)) == 0
    assert offsets(folders["hit"]) == [0, 1]


def test_an_empty_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hit-1").mkdir()
    assert tear_logs(tmp_path, ["hit"], random.Random(1)) == 0
    assert change_bytes(tmp_path, ["hit"], random.Random(1)) == 0


@pytest.mark.parametrize("damage", [tear_logs, change_bytes])
def test_a_broker_is_told_that_its_machine_stopped(tmp_path: Path, damage: object) -> None:
    """R13. One that believes to have all it had may lead on, and what it lost would be lost."""
    assert callable(damage)
    write_logs(tmp_path, "hit")
    damage(tmp_path, ["hit"], random.Random(1))
    assert not (tmp_path / BOOT_ID).exists(), "Kafka keeps none"
    (tmp_path / BOOT_ID).write_text("this boot")
    damage(tmp_path, ["hit"], random.Random(1))
    assert (tmp_path / BOOT_ID).read_text() != "this boot"
