"""Names of files and folders, both directions (S1, S2)."""

from uuid import UUID

import pytest

from tidelog.base.ids import TopicPartition
from tidelog.storage import layout

UNIQUE = UUID(int=0xABC)


def test_segment_files_carry_twenty_digits() -> None:
    assert layout.file_name(42, layout.LOG) == "00000000000000000042.log"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("my-topic.v1_x-12", TopicPartition("my-topic.v1_x", 12)),
        ("a--1", TopicPartition("a-", 1)),
        ("orders", None),
        ("-0", None),
        ("orders-", None),
        ("orders-x", None),
        ("orders-01", None),
        ("orders-٣", None),
        ("orders-0.abc-delete", None),
        ("orders-0.abc-future", None),
        ("recovery-point-offset-checkpoint", None),
    ],
)
def test_partition_folders_are_told_from_others(name: str, expected: TopicPartition | None) -> None:
    assert layout.parse_partition_folder(name) == expected


def test_folder_to_delete_is_no_partition_any_more() -> None:
    name = layout.delete_folder_name(TopicPartition("orders", 3), UNIQUE)
    assert name == "orders-3.00000000000000000000000000000abc-delete"
    assert layout.is_delete_folder(name)
    assert layout.parse_partition_folder(name) is None


def test_folder_to_delete_has_a_name_that_fits() -> None:
    name = layout.delete_folder_name(TopicPartition("x" * 249, 12), UNIQUE)
    assert len(name) == 255
    assert layout.is_delete_folder(name)


def test_topic_called_delete_is_not_deleted() -> None:
    assert not layout.is_delete_folder("my.topic-delete-0")


def test_contents_are_sorted_by_kind() -> None:
    names = sorted(
        [
            "00000000000000000000.log",
            "00000000000000000000.index",
            "00000000000000000007.log",
            "00000000000000000007.snapshot",
            "00000000000000000003.log.deleted",
            "00000000000000000003.log.swap",
            "0000000000000000000x.log",
            "7.log",
            "leader-epoch-checkpoint",
            "leader-epoch-checkpoint.tmp",
            "partition.metadata",
        ]
    )
    contents = layout.sort_folder(names)
    assert contents.offsets(layout.LOG) == [0, 7]
    assert contents.offsets(layout.OFFSET_INDEX) == [0]
    assert contents.offsets(layout.SNAPSHOT) == [7]
    assert contents.offsets(layout.TIME_INDEX) == []
    assert contents.leftovers == [
        "00000000000000000003.log.deleted",
        "leader-epoch-checkpoint.tmp",
    ]
    assert contents.others == {
        "00000000000000000003.log.swap",
        "0000000000000000000x.log",
        "7.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
