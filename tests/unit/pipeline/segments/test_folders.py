"""Partitions are found wherever their folders lie, and not mistaken for others (X6, S1)."""

from pathlib import Path
from uuid import UUID

import pytest

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.segments import PartitionFolder, find_partitions, holds_segments
from tidelog.storage import layout
from tidelog.storage.checkpoints import write_offsets, write_topic_id
from tidelog.storage.disk import RealDisk

UNIQUE = UUID(int=7)
ORDERS_0, ORDERS_3 = TopicPartition("orders", 0), TopicPartition("orders", 3)


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").touch()
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two brokers as `tidelog up` lays them out, with everything that lies about."""
    for broker in (1, 2):
        log_dir = tmp_path / f"broker-{broker}" / "logs"
        make(log_dir / "orders-0")
        make(log_dir / "orders-3")
        make(log_dir / "__consumer_offsets-7")
        make(log_dir / "__cluster_metadata-0")
        make(log_dir / layout.delete_folder_name(TopicPartition("old", 1), UNIQUE))
        make(log_dir / layout.stray_folder_name(TopicPartition("lost", 1), UNIQUE))
        make(log_dir / f"coming-1.{UNIQUE.hex}-future")
        (log_dir / "meta.properties").touch()
        (log_dir / "empty-5").mkdir()
    return tmp_path


def found(*paths: Path | str, topics: set[str] | None = None) -> list[Path]:
    return [each.path for each in find_partitions([str(path) for path in paths], topics=topics)]


def test_in_a_log_dir(data: Path) -> None:
    log_dir = data / "broker-1" / "logs"
    assert found(log_dir) == [log_dir / "orders-0", log_dir / "orders-3"]


def test_in_the_folder_of_a_cluster_every_replica(data: Path) -> None:
    one, two = data / "broker-1" / "logs", data / "broker-2" / "logs"
    assert found(data) == [
        one / "orders-0",
        two / "orders-0",
        one / "orders-3",
        two / "orders-3",
    ]


def test_a_partition_by_its_folder(data: Path) -> None:
    folder = data / "broker-1" / "logs" / "orders-3"
    (partition,) = find_partitions([f"{folder}/"], topics=None)
    assert partition == PartitionFolder(ORDERS_3, folder, None, 0, None)


def test_replicas_in_the_order_in_which_they_are_given(data: Path) -> None:
    one, two = data / "broker-1" / "logs", data / "broker-2" / "logs"
    assert found(f"{two}, {one}", topics={"orders"})[:2] == [two / "orders-0", one / "orders-0"]
    assert found(two, one)[:2] == [two / "orders-0", one / "orders-0"]


def test_by_patterns(data: Path) -> None:
    assert len(found(data / "broker-*" / "logs" / "orders-*")) == 4


def test_a_pattern_means_only_what_it_says(data: Path) -> None:
    """Checkpoints, internal topics and folders that are being deleted match it by chance."""
    log_dir = data / "broker-1" / "logs"
    make(log_dir / layout.delete_folder_name(ORDERS_0, UNIQUE))
    assert found(log_dir / "*") == found(log_dir)
    assert found(log_dir / "orders-*") == found(log_dir)
    with pytest.raises(OptionError, match=r"path .*/\*\.properties has no partitions in it"):
        found(log_dir / "*.properties")


def test_what_is_found_twice_is_there_once(data: Path) -> None:
    log_dir = data / "broker-1" / "logs"
    assert found(data, log_dir, log_dir / "orders-0") == found(data)


def test_a_comma_in_a_name_separates_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path / "a,b" / "orders-0")
    assert found(tmp_path / "a,b") == [folder]


def test_topics_of_the_cluster_itself_when_asked_by_name(data: Path) -> None:
    log_dir = data / "broker-1" / "logs"
    internal = log_dir / "__consumer_offsets-7"
    assert internal not in found(log_dir)
    assert found(log_dir, topics={"__consumer_offsets"}) == [internal]
    assert found(internal) == [internal]
    assert found(log_dir / "__consumer_offsets-*") == [internal]


def test_only_topics_that_are_asked_for(data: Path) -> None:
    assert found(data, topics={"nothing"}) == []


def test_a_folder_that_was_set_aside_when_it_is_named(data: Path) -> None:
    """Who lost a topic may want its records back; what the checkpoints say is not about it."""
    log_dir = data / "broker-1" / "logs"
    disk = RealDisk()
    write_offsets(
        disk, log_dir / layout.HIGH_WATERMARK_CHECKPOINT, {TopicPartition("lost", 1): Offset(5)}
    )
    (stray,) = find_partitions([f"{log_dir}/lost-1.*-stray"], topics=None)
    assert (stray.partition, stray.high_watermark) == (TopicPartition("lost", 1), None)


def test_a_replica_that_was_moved_is_read_where_it_is_now(data: Path) -> None:
    log_dir = data / "broker-1" / "logs"
    (log_dir / "orders-0" / layout.MOVED).touch()
    assert found(log_dir) == [log_dir / "orders-3"]


def test_checkpoints_beside_it_say_how_far_it_may_be_read(data: Path) -> None:
    log_dir = data / "broker-1" / "logs"
    disk = RealDisk()
    write_offsets(disk, log_dir / layout.HIGH_WATERMARK_CHECKPOINT, {ORDERS_0: Offset(42)})
    write_offsets(disk, log_dir / layout.LOG_START_OFFSET_CHECKPOINT, {ORDERS_0: Offset(7)})
    write_offsets(disk, log_dir / layout.CLEANER_OFFSET_CHECKPOINT, {ORDERS_0: Offset(9)})
    topic_id = TopicId(UUID(int=9))
    write_topic_id(disk, log_dir / "orders-0" / layout.PARTITION_METADATA, topic_id)
    first, second = find_partitions([str(log_dir)], topics=None)
    assert (first.log_start_offset, first.high_watermark, first.topic_id) == (7, 42, topic_id)
    assert (second.log_start_offset, second.high_watermark, second.topic_id) == (0, None, None)
    assert (first.cleaned_offset, second.cleaned_offset) == (9, 0)


def test_what_is_left_of_a_partition_is_found(data: Path) -> None:
    """What reads it says that something is missing, where it would have been no partition."""
    log_dir = data / "broker-1" / "logs"
    for suffix in ("index", "timeindex"):
        (log_dir / f"{suffix}-0").mkdir()
        (log_dir / f"{suffix}-0" / f"{0:020d}.{suffix}").touch()
    (log_dir / "linked-0").symlink_to(data / "unmounted")
    (log_dir / "linked").symlink_to(data / "unmounted")
    (log_dir / "loop-0").symlink_to(log_dir)
    left = [path.name for path in found(log_dir) if not path.name.startswith("orders")]
    assert left == ["index-0", "linked-0", "timeindex-0"]
    assert not any(holds_segments(log_dir / name) for name in left)
    assert holds_segments(log_dir / "orders-3")


@pytest.mark.parametrize("name", ["my.topic-of-3", "a.b.c-0", "-7", "0-0", "x--1"])
def test_names_of_topics_may_have_dots_and_dashes(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "log dir [1]" / f"{name}-12")
    (partition,) = find_partitions([str(folder.parent)], topics=None)
    assert (partition.partition, partition.path) == (TopicPartition(name, 12), folder)
    assert found(folder, topics={name}) == [folder]


def test_a_checkpoint_that_cannot_be_read_is_named(data: Path) -> None:
    """Without it, nobody knows what is committed."""
    log_dir = data / "broker-1" / "logs"
    (log_dir / layout.HIGH_WATERMARK_CHECKPOINT).write_text("nonsense")
    with pytest.raises(StorageError, match="replication-offset-checkpoint"):
        found(log_dir)


def test_file_urls_are_paths(data: Path) -> None:
    assert found(f"file://{data}") == found(data)
    assert found(f"file:{data}") == found(data)


@pytest.mark.parametrize("url", ["hdfs://host/logs", "s3a://bucket/logs"])
def test_what_is_not_on_a_file_system_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match=f"path {url} is not on a file system"):
        found(url)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"path .*/nowhere does not exist"):
        found(tmp_path / "nowhere")


def test_a_file_is_no_folder(data: Path) -> None:
    [file] = (data / "broker-1" / "logs" / "orders-3").glob("*.log")
    with pytest.raises(OptionError, match=r"path .*\.log is a file: give the folder"):
        found(file)


@pytest.mark.parametrize("path", ["", " ", ",", " , "])
def test_an_empty_path_is_not_the_folder_that_one_is_in(
    data: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    with pytest.raises(OptionError, match="path is empty"):
        find_partitions([path], topics=None)


def test_a_path_without_partitions_is_named(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(OptionError, match=f"path {tmp_path} has no partitions in it"):
        found(tmp_path)
