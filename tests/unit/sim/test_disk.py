"""Disks of simulated machines, and the threads that work on them."""

import asyncio
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from random import Random

import pytest

from tidelog.base.errors import DiskFull, StorageError
from tidelog.sim.disk import ProcessDisk, ProcessEnded, SimulatedDisk
from tidelog.sim.executor import SimulatedExecutor
from tidelog.sim.process import Process
from tidelog.sim.world import World

FOLDER = Path("/logs")
FILE = FOLDER / "a.log"
WORK_MIN_S = 0.001
WORK_MAX_S = 0.010


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1, lines_max=1_000) as world:
        yield world


@pytest.fixture
def machine(world: World) -> SimulatedDisk:
    return SimulatedDisk(
        world, "machine", total_bytes=2**30, work_min_s=WORK_MIN_S, work_max_s=WORK_MAX_S
    )


def attached(world: World, machine: SimulatedDisk) -> tuple[Process, ProcessDisk]:
    process = world.process("user")
    disk = machine.attach(process)
    disk.make_folder(FOLDER)
    return process, disk


# -- disk ----------------------------------------------------------------------------------------


def test_a_dead_process_never_writes(world: World, machine: SimulatedDisk) -> None:
    process, disk = attached(world, machine)
    file = disk.open(FILE)
    file.append(b"alive")
    process.kill()
    calls: list[Callable[[], object]] = [
        lambda: file.append(b"dead"),
        lambda: file.truncate(0),
        file.flush,
        lambda: disk.remove(FILE),
        lambda: disk.open(FOLDER / "b.log"),
        lambda: disk.replace_file(FILE, b"dead"),
        lambda: disk.rename(FILE, FOLDER / "b.log"),
    ]
    for call in calls:
        with pytest.raises(ProcessEnded):
            call()
    _, after = attached(world, machine)
    assert after.read_file(FILE) == b"alive"
    assert after.list_folder(FOLDER) == ["a.log"]


def test_a_lock_goes_with_its_process(world: World, machine: SimulatedDisk) -> None:
    process, disk = attached(world, machine)
    lock = disk.lock(FOLDER / ".lock")
    process.kill()
    _, after = attached(world, machine)
    after.lock(FOLDER / ".lock")
    lock.release()
    with pytest.raises(StorageError):
        after.lock(FOLDER / ".lock")


def test_faults_stay_over_a_restart_until_they_are_healed(
    world: World, machine: SimulatedDisk
) -> None:
    process, disk = attached(world, machine)
    machine.arm("flush", "*.log", StorageError)
    with pytest.raises(StorageError):
        disk.open(FILE).flush()
    process.kill()
    _, after = attached(world, machine)
    with pytest.raises(StorageError):
        after.open(FILE).flush()
    machine.heal()
    after.open(FILE).flush()


def test_one_folder_can_fail_and_others_go_on(world: World, machine: SimulatedDisk) -> None:
    _, disk = attached(world, machine)
    other = Path("/others")
    disk.make_folder(other)
    file = disk.open(FILE)
    machine.fail_in(FOLDER)
    with pytest.raises(StorageError):
        file.append(b"lost")
    with pytest.raises(StorageError):
        disk.list_folder(FOLDER)
    disk.open(other / "b.log").append(b"kept")
    file.flush()  # After one that failed nobody would try the folder again.
    machine.heal()
    file.append(b"kept")
    machine.fill_in(other)
    with pytest.raises(DiskFull):
        disk.open(other / "c.log")
    assert disk.open(other / "b.log").read(0, 4) == b"kept"
    file.append(b"kept")


def test_a_disk_knows_when_something_could_last_fail(world: World, machine: SimulatedDisk) -> None:
    assert machine.last_failed_s == -inf
    world.run_for(1.0)
    machine.fail_in(FOLDER)
    world.run_for(1.0)
    assert machine.last_failed_s == 2.0
    machine.heal()
    world.run_for(1.0)
    machine.heal()
    assert machine.last_failed_s == 2.0
    machine.fill()
    assert machine.last_failed_s == 3.0


def test_a_full_disk_can_be_read_and_emptied(world: World, machine: SimulatedDisk) -> None:
    _, disk = attached(world, machine)
    file = disk.open(FILE)
    file.append(b"before")
    machine.fill()
    with pytest.raises(DiskFull):
        file.append(b"after")
    with pytest.raises(DiskFull):
        disk.open(FOLDER / "b.log")
    with pytest.raises(DiskFull):
        disk.replace_file(FILE, b"")
    assert disk.open(FILE).read(0, 6) == b"before"
    file.truncate(3)
    machine.heal()
    file.append(b"!")
    assert disk.read_file(FILE) == b"bef!"


def test_a_cold_disk_has_nothing_in_memory(world: World, machine: SimulatedDisk) -> None:
    _, disk = attached(world, machine)
    file = disk.open(FILE)
    file.append(b"x")
    machine.set_cold()
    assert file.read_cached(0, 1) is None
    machine.heal()
    assert file.read_cached(0, 1) == b"x"


def test_a_process_dies_between_two_changes(world: World, machine: SimulatedDisk) -> None:
    process, disk = attached(world, machine)
    file = disk.open(FILE)
    machine.kill_after(2)
    file.append(b"1")
    assert file.read(0, 1) == b"1"
    file.append(b"2")
    with pytest.raises(ProcessEnded):
        file.append(b"3")
    assert not process.is_alive
    _, after = attached(world, machine)
    assert after.read_file(FILE) == b"12"
    after.open(FILE).append(b"3")


def test_who_looks_from_outside_neither_kills_nor_fails(
    world: World, machine: SimulatedDisk
) -> None:
    process, disk = attached(world, machine)
    disk.open(FILE).append(b"1")
    machine.kill_after(0)
    machine.arm("read_file", "*", StorageError)
    with machine.looked_at():
        disk.open(FILE)
        assert disk.read_file(FILE) == b"1"
    assert process.is_alive
    with pytest.raises(ProcessEnded):
        disk.open(FILE)


def test_a_power_cut_takes_what_was_not_flushed(world: World, machine: SimulatedDisk) -> None:
    left: set[int] = set()
    for seed in range(20):
        process, disk = attached(world, machine)
        disk.flush_folder(Path("/"))
        file = disk.open(FILE)
        disk.flush_folder(FOLDER)
        file.append(b"flushed")
        file.flush()
        file.append(b"x" * 1_000)
        process.kill()
        machine.power_cut(Random(seed))
        process, disk = attached(world, machine)
        assert disk.read_file(FILE).startswith(b"flushed")
        left.add(disk.size_bytes(FILE))
        disk.remove(FILE)
        process.kill()
    assert len(left) > 2


# -- executor ------------------------------------------------------------------------------------


def test_work_is_done_later_in_the_order_of_its_lane(world: World, machine: SimulatedDisk) -> None:
    done: list[str] = []

    async def main(process: Process) -> list[None]:
        executor = SimulatedExecutor(process, machine)
        futures = [executor.urgent(done.append, f"urgent {number}") for number in range(5)]
        futures += [executor.background(done.append, f"background {number}") for number in range(5)]
        assert done == []
        return await asyncio.gather(*futures)

    assert world.run("user", main) == [None] * 10
    for lane in ("urgent", "background"):
        assert [each for each in done if each.startswith(lane)] == [
            f"{lane} {number}" for number in range(5)
        ]
    assert 5 * WORK_MIN_S <= world.now_s <= 5 * WORK_MAX_S
    assert done != sorted(done)


def test_a_failure_reaches_who_waits(world: World, machine: SimulatedDisk) -> None:
    def fail() -> None:
        raise StorageError("planned")

    async def main(process: Process) -> str:
        executor = SimulatedExecutor(process, machine)
        with pytest.raises(StorageError):
            await executor.urgent(fail)
        return await executor.urgent(lambda: "still works")

    assert world.run("user", main) == "still works"


def test_work_that_nobody_waits_for_any_more_is_done_all_the_same(
    world: World, machine: SimulatedDisk
) -> None:
    done: list[int] = []

    async def main(process: Process) -> None:
        executor = SimulatedExecutor(process, machine)
        executor.urgent(done.append, 1).cancel()
        await executor.urgent(done.append, 2)

    world.run("user", main)
    assert done == [1, 2]


def test_a_kill_comes_before_or_after_a_piece_of_work_and_before_its_news(world: World) -> None:
    outcomes: set[tuple[int, int]] = set()
    for number in range(50):
        machine = SimulatedDisk(
            world, f"m{number}", total_bytes=1, work_min_s=WORK_MAX_S, work_max_s=WORK_MAX_S
        )
        done: list[int] = []
        heard: list[int] = []

        async def main(process: Process) -> None:
            executor = SimulatedExecutor(process, machine)  # noqa: B023 - ends in this round
            await executor.urgent(done.append, 1)  # noqa: B023
            heard.append(1)  # noqa: B023

        process = world.spawn("user", main)
        world.run_for(WORK_MAX_S / 2)
        process.kill()
        world.run_for(1)
        outcomes.add((len(done), len(heard)))
    assert outcomes == {(0, 0), (1, 0)}


def test_a_slow_disk_takes_longer(world: World, machine: SimulatedDisk) -> None:
    async def main(process: Process) -> None:
        await SimulatedExecutor(process, machine).urgent(lambda: None)

    machine.slow(1_000)
    world.run("user", main)
    assert world.now_s >= 1_000 * WORK_MIN_S


def test_a_hanging_disk_goes_on_when_it_is_healed(world: World, machine: SimulatedDisk) -> None:
    done: list[int] = []

    async def main(process: Process) -> None:
        executor = SimulatedExecutor(process, machine)
        first = executor.urgent(done.append, 1)
        machine.hang()
        second = executor.urgent(done.append, 2)
        third = executor.background(done.append, 3)
        await asyncio.gather(first, second, third)

    process = world.spawn("user", main)
    world.run_for(60)
    assert done == [1]
    machine.heal()
    world.run_for(1)
    assert sorted(done) == [1, 2, 3]
    assert not process.is_alive


def test_closing_does_what_was_handed_in(world: World, machine: SimulatedDisk) -> None:
    done: list[int] = []

    async def main(process: Process) -> None:
        executor = SimulatedExecutor(process, machine)
        executor.urgent(done.append, 1)
        executor.urgent(done.append, 2)
        executor.close()

    world.run("user", main)
    assert done == [1, 2]
