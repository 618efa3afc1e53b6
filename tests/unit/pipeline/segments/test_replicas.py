"""Of several replicas the one that can be read furthest is read, and no record twice (X6)."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.storage.log_folder import LogFolder, append_records, log_config
from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.segments import PartitionFolder, choose_replicas, readable_range
from tidelog.storage.disk import RealDisk

PARTITION = TopicPartition("orders", 3)


def replica(
    root: Path,
    record_count: int,
    *,
    high_watermark: int | None = None,
    log_start_offset: int = 0,
    topic_id: TopicId | None = None,
) -> PartitionFolder:
    folder = root / f"replica-{len(list(root.iterdir()))}" / "orders-3"
    log_folder = LogFolder(RealDisk(), folder, log_config(index_interval_bytes=0))
    log = log_folder.open_log()
    append_records(log, record_count)
    log.flush(up_to=Offset(record_count))
    log_folder.crash(log)
    return PartitionFolder(PARTITION, folder, topic_id, log_start_offset, high_watermark)


def test_the_one_with_the_most_committed_records(tmp_path: Path) -> None:
    behind = replica(tmp_path, 9, high_watermark=4)
    ahead = replica(tmp_path, 7, high_watermark=6)
    assert choose_replicas([behind, ahead]) == [ahead]


def test_of_equal_ones_the_one_that_begins_first(tmp_path: Path) -> None:
    late = replica(tmp_path, 5, log_start_offset=3)
    early = replica(tmp_path, 5, log_start_offset=1)
    assert choose_replicas([late, early]) == [early]


def test_of_equal_ones_the_one_that_was_given_first(tmp_path: Path) -> None:
    one, two = replica(tmp_path, 5), replica(tmp_path, 5)
    assert choose_replicas([one, two]) == [one]
    assert choose_replicas([two, one]) == [two]


def test_one_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    ahead, behind = replica(tmp_path, 9), replica(tmp_path, 5)
    (ahead.path / f"{0:020d}.log.swap").touch()
    assert choose_replicas([ahead, behind]) == [behind]


def test_folders_of_two_topics_of_one_name_are_not_replicas(tmp_path: Path) -> None:
    one = replica(tmp_path, 5, topic_id=TopicId(UUID(int=1)))
    two = replica(tmp_path, 5, topic_id=TopicId(UUID(int=2)))
    with pytest.raises(OptionError, match="the same name and different ids"):
        choose_replicas([one, two])


def test_what_is_committed_is_readable(tmp_path: Path) -> None:
    folder = replica(tmp_path, 5, high_watermark=3, log_start_offset=1)
    assert readable_range(folder, is_beyond_high_watermark=False) == (1, 3)
    assert readable_range(folder, is_beyond_high_watermark=True) == (1, 5)


def test_a_high_watermark_that_is_ahead_of_a_copy_is_no_matter(tmp_path: Path) -> None:
    folder = replica(tmp_path, 5, high_watermark=30)
    assert readable_range(folder, is_beyond_high_watermark=False) == (0, 5)
