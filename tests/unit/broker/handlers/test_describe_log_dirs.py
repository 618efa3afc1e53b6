"""DescribeLogDirs: what each directory holds and how full its disk is (P1, S1, S9)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from kio.schema.describe_log_dirs.v5.request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tests.unit.broker.handlers.samples import context
from tidelog.base.errors import StorageError
from tidelog.base.ids import TopicPartition
from tidelog.broker.handlers.describe_log_dirs import DescribeLogDirsHandler

P = ParamSpec("P")
T = TypeVar("T")


class AtOnce:
    """Makes blocking calls on the spot."""

    def urgent(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]":
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work(*args, **kwargs))
        except StorageError as error:
            future.set_exception(error)
        return future


@dataclass
class Sized:
    size_bytes: int


@dataclass
class Held:
    log: Sized


@dataclass
class Copied:
    size_bytes: int
    offset_lag: int


@dataclass
class Directory:
    """A log directory in memory."""

    path: Path
    runners: dict[TopicPartition, Held]
    futures: dict[TopicPartition, Copied] = field(default_factory=dict)
    is_online: bool = True
    is_failing: bool = False
    executor: AtOnce = field(default_factory=AtOnce)

    def total_bytes(self) -> int:
        if self.is_failing:
            raise StorageError(f"{self.path}: Input/output error")
        return 1000

    def usable_bytes(self) -> int:
        return 400


def directory(path: str, *held: tuple[str, int, int]) -> Directory:
    return Directory(
        Path(path), {TopicPartition(name, index): Held(Sized(size)) for name, index, size in held}
    )


FIRST = directory("/data/1", ("t", 1, 70), ("t", 0, 50), ("s", 0, 0))
SECOND = directory("/data/2", ("t", 2, 10))


def describe(
    log_dirs: Sequence[Directory], *topics: tuple[str, Sequence[int]], is_filtered: bool = True
) -> DescribeLogDirsResponse:
    filtered = tuple(
        DescribableLogDirTopic(
            topic=TopicName(name), partitions=tuple(i32(index) for index in indexes)
        )
        for name, indexes in topics
    )
    request = DescribeLogDirsRequest(topics=filtered if is_filtered else None)
    return asyncio.run(DescribeLogDirsHandler(log_dirs=log_dirs).handle(request, context()))


def sizes(result: DescribeLogDirsResult) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic.name, [(one.partition_index, one.partition_size) for one in topic.partitions])
        for topic in result.topics
    ]


def test_every_directory_lists_its_own_partitions() -> None:
    response = describe([FIRST, SECOND], is_filtered=False)
    assert response.error_code is ErrorCode.none
    assert [result.log_dir for result in response.results] == ["/data/1", "/data/2"]
    assert sizes(response.results[0]) == [("s", [(0, 0)]), ("t", [(0, 50), (1, 70)])]
    assert sizes(response.results[1]) == [("t", [(2, 10)])]


def test_a_partition_lags_behind_nobody_here() -> None:
    response = describe([SECOND], is_filtered=False)
    (partition,) = response.results[0].topics[0].partitions
    assert (partition.offset_lag, partition.is_future_key) == (0, False)


def test_a_replica_that_is_being_moved_is_in_both_directories() -> None:
    """KIP-113: where it is to be, it is a future one, with what it has and what it lacks."""
    there = directory("/data/3")
    there.futures = {TopicPartition("t", 1): Copied(30, 7), TopicPartition("u", 0): Copied(0, 1)}
    here, future = describe([FIRST, there], ("t", [1])).results
    assert sizes(here) == [("t", [(1, 70)])]
    assert sizes(future) == [("t", [(1, 30)])]
    (partition,) = future.topics[0].partitions
    assert (partition.offset_lag, partition.is_future_key) == (7, True)


def test_a_directory_tells_how_full_its_disk_is() -> None:
    (result,) = describe([FIRST], is_filtered=False).results
    assert (result.total_bytes, result.usable_bytes) == (1000, 400)


def test_only_the_partitions_asked_for_are_listed() -> None:
    response = describe([FIRST, SECOND], ("t", [0, 2, 9]), ("t", [1]), ("gone", [0]))
    assert [sizes(result) for result in response.results] == [
        [("t", [(0, 50), (1, 70)])],
        [("t", [(2, 10)])],
    ]


def test_directories_are_listed_even_if_no_partition_is_asked_for() -> None:
    response = describe([FIRST, SECOND])
    assert [sizes(result) for result in response.results] == [[], []]


def test_an_offline_directory_fails_alone() -> None:
    offline = directory("/data/3", ("t", 3, 5))
    offline.is_online = False
    response = describe([offline, SECOND], is_filtered=False)
    assert response.results[0].error_code is ErrorCode.kafka_storage_error
    assert response.results[0].topics == ()
    assert (response.results[0].total_bytes, response.results[0].usable_bytes) == (-1, -1)
    assert response.results[1].error_code is ErrorCode.none


def test_a_disk_that_fails_to_answer_fails_alone() -> None:
    failing = directory("/data/3", ("t", 3, 5))
    failing.is_failing = True
    response = describe([SECOND, failing], is_filtered=False)
    assert [result.error_code for result in response.results] == [
        ErrorCode.none,
        ErrorCode.kafka_storage_error,
    ]


class Unreadable(Sized):
    """A log of whose segments nobody has asked the size yet, on a disk that fails."""

    def __getattribute__(self, name: str) -> object:
        if name == "size_bytes":
            raise StorageError("Input/output error")
        return super().__getattribute__(name)


def test_a_log_whose_size_cannot_be_had_fails_its_directory_alone() -> None:
    """S9"""
    broken = directory("/data/3")
    broken.runners[TopicPartition("t", 3)] = Held(Unreadable.__new__(Unreadable))
    first, second = describe([SECOND, broken], is_filtered=False).results
    assert sizes(first) == [("t", [(2, 10)])]
    assert second.error_code is ErrorCode.kafka_storage_error
