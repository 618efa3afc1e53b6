"""Processes in virtual time: order, ends, pauses, and that a run can be repeated."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from tidelog.sim.loop import Livelock
from tidelog.sim.process import Process
from tidelog.sim.world import Main, NeverHappened, World


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1, lines_max=1_000) as world:
        yield world


async def forever(_process: Process) -> None:
    await asyncio.Event().wait()


# -- asyncio on a process's loop -----------------------------------------------------------------


def test_time_passes_only_while_everybody_waits(world: World) -> None:
    async def main(process: Process) -> list[float]:
        assert asyncio.get_running_loop() is process.loop
        moments = []
        for delay_s in (3600.0, 0.0, 0.25):
            await asyncio.sleep(delay_s)
            moments.append(process.loop.time())
        return moments

    assert world.run("a", main) == [3600.0, 3600.0, 3600.25]
    assert world.now_s == 3600.25


def test_a_timeout_ends_a_wait(world: World) -> None:
    async def main(process: Process) -> float:
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2)
        return process.loop.time()

    assert world.run("a", main) == 7.0


def test_a_task_group_cancels_its_tasks_when_one_fails(world: World) -> None:
    cancelled: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(number)

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("planned")

    async def main(_process: Process) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(wait(number))
            tasks.create_task(fail())

    with pytest.raises(ExceptionGroup):
        world.run("a", main)
    assert sorted(cancelled) == list(range(20))


def test_a_queue_joins_two_tasks(world: World) -> None:
    async def main(_process: Process) -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

        async def put() -> None:
            for number in range(10):
                await queue.put(number)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(put())
            return [await queue.get() for _ in range(10)]

    assert world.run("a", main) == list(range(10))


def test_a_cancelled_timer_never_fires(world: World) -> None:
    fired: list[str] = []

    async def main(process: Process) -> None:
        process.loop.call_later(1, fired.append, "cancelled").cancel()
        process.loop.call_soon(fired.append, "also cancelled").cancel()
        process.loop.call_later(2, fired.append, "kept")
        await asyncio.sleep(3)

    world.run("a", main)
    assert fired == ["kept"]


def test_many_cancelled_timers_leave_the_others_in_order(world: World) -> None:
    fired: list[int] = []

    async def main(process: Process) -> None:
        for number in range(5_000):
            timer = process.loop.call_later(number / 1_000, fired.append, number)
            if number % 10:
                timer.cancel()
        await asyncio.sleep(10)

    world.run("a", main)
    assert fired == list(range(0, 5_000, 10))


def test_work_for_a_thread_runs_later_in_the_order_of_its_thread(world: World) -> None:
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return number

    async def main(process: Process) -> list[int]:
        thread = ThreadPoolExecutor(max_workers=1)
        futures = [process.loop.run_in_executor(thread, work, number) for number in range(10)]
        assert done == []
        results = await asyncio.gather(*futures)
        assert await asyncio.to_thread(work, 10) == 10
        assert process.loop.time() > 0
        return results

    assert world.run("a", main) == list(range(10))
    assert done == list(range(11))


def test_a_failure_of_work_for_a_thread_reaches_who_waits(world: World) -> None:
    def work() -> None:
        raise OSError("planned")

    async def main(_process: Process) -> None:
        with pytest.raises(OSError, match="planned"):
            await asyncio.to_thread(work)

    world.run("a", main)


def test_a_generator_that_is_left_runs_its_finally(world: World) -> None:
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(1)
            ended.append("ended")

    async def main(_process: Process) -> None:
        async for number in numbers():
            if number == 3:
                break
        await asyncio.sleep(2)

    world.run("a", main)
    assert ended == ["ended"]


def test_a_process_that_never_waits_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.sim.loop.CALLBACKS_AT_ONCE_MAX", 1_000)

    async def spin(_process: Process) -> None:
        while True:  # noqa: ASYNC110 - to wait for nothing is the point
            await asyncio.sleep(0)

    world.spawn("a", spin)
    with pytest.raises(Livelock):
        world.run_for(1)


# -- processes -----------------------------------------------------------------------------------


def test_processes_share_one_time(world: World) -> None:
    order: list[tuple[float, str]] = []

    def ticking(every_s: float) -> Main:
        async def tick(process: Process) -> None:
            while True:
                await asyncio.sleep(every_s)
                order.append((process.loop.time(), process.name))

        return tick

    world.spawn("slow", ticking(3.0))
    world.spawn("fast", ticking(2.0))
    world.run_for(7)
    assert order == [(2, "fast"), (3, "slow"), (4, "fast"), (6, "slow"), (6, "fast")]
    assert world.now_s == 7


def test_nothing_of_a_killed_process_runs_again(world: World) -> None:
    traces: list[str] = []

    async def helper() -> None:
        try:
            await asyncio.sleep(1)
            traces.append("went on")
        finally:
            traces.append("finally")

    async def main(process: Process) -> None:
        process.loop.call_later(1, traces.append, "timer")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(helper())
                await asyncio.Event().wait()
        finally:
            traces.append("finally of main")

    process = world.spawn("a", main)
    world.run_for(0.5)
    process.kill()
    world.run_for(10)
    gc.collect()
    assert traces == []
    assert not process.is_alive
    assert process.failure is None


def test_taking_a_world_apart_makes_no_noise(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever its processes were in the middle of. Warnings are errors here."""

    async def generate() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(1)
                yield 1
        finally:
            await asyncio.sleep(1)

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
            finally:
                await asyncio.sleep(1)

    async def main(_process: Process) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stubborn())
            async with asyncio.timeout(100):
                async for _ in generate():
                    pass

    with World(seed=1, lines_max=0) as world:
        world.spawn("killed", main)
        world.spawn("alive", main)
        world.run_for(5.5)
        world.processes[0].kill()
        world.run_for(5)
    del world
    gc.collect()
    assert capsys.readouterr().err == ""


def test_a_process_can_kill_itself(world: World) -> None:
    traces: list[str] = []

    async def main(process: Process) -> None:
        process.loop.call_soon(traces.append, "callback")
        process.kill()
        await asyncio.sleep(0)
        traces.append("went on")

    world.spawn("a", main)
    world.run_for(1)
    assert traces == []


def test_a_paused_process_finds_everything_when_it_goes_on(world: World) -> None:
    order: list[tuple[float, str]] = []

    async def main(process: Process) -> None:
        for delay_s in (1.0, 2.0, 30.0):
            process.loop.call_later(delay_s, lambda: order.append((process.loop.time(), "timer")))
        await asyncio.sleep(3)
        order.append((process.loop.time(), "main"))
        await asyncio.Event().wait()

    process = world.spawn("a", main)
    world.run_for(1.5)
    process.pause()
    world.run_for(10)
    assert order == [(1.0, "timer")]
    process.resume()
    world.run_for(0)
    assert order == [(1.0, "timer"), (11.5, "timer"), (11.5, "main")]
    world.run_for(100)
    assert order[-1] == (30.0, "timer")


def test_a_paused_process_can_be_killed(world: World) -> None:
    process = world.spawn("a", forever)
    process.pause()
    process.kill()
    process.resume()
    world.run_for(1)
    assert not process.is_alive


def test_an_exception_in_a_callback_ends_the_process(world: World) -> None:
    async def main(process: Process) -> None:
        def fail() -> None:
            raise AssertionError("seen the impossible")

        process.loop.call_later(1, fail)
        await asyncio.sleep(2)

    process = world.spawn("a", main)
    world.run_for(10)
    assert isinstance(process.failure, AssertionError)
    assert not process.is_alive


def test_an_exception_that_nobody_looks_at_ends_the_process(world: World) -> None:
    async def fail() -> None:
        raise AssertionError("seen the impossible")

    async def main(process: Process) -> None:
        process.loop.create_task(fail())
        await asyncio.sleep(2)

    process = world.spawn("a", main)
    world.run_for(10)
    assert isinstance(process.failure, AssertionError)


def test_the_end_of_main_ends_the_process(world: World) -> None:
    ends: list[str] = []

    async def main(process: Process) -> None:
        process.at_end(lambda: ends.append(process.name))
        await asyncio.sleep(1)

    process = world.spawn("a", main)
    world.run_for(2)
    assert not process.is_alive
    assert process.failure is None
    assert ends == ["a"]


# -- the world -----------------------------------------------------------------------------------


def test_the_world_does_things_between_processes(world: World) -> None:
    process = world.spawn("a", forever)
    world.call_later(3, process.kill)
    world.run_until(lambda: not process.is_alive, within_s=5)
    assert world.now_s == 3


def test_whoever_is_asked_whether_to_go_on_may_let_the_world_run(world: World) -> None:
    """A process goes on afterwards on its own loop, whoever ran meanwhile."""

    async def tick(process: Process, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            assert asyncio.get_running_loop() is process.loop

    # The second has the last turn of what runs meanwhile, and the next one after it.
    processes = [
        world.spawn("a", partial(tick, every_s=1.0)),
        world.spawn("b", partial(tick, every_s=0.1)),
    ]

    def is_late() -> bool:
        world.run_for(0.5)
        return world.now_s > 20

    world.run_until(is_late, within_s=60)
    assert all(process.is_alive for process in processes)


def test_what_never_happens_is_said(world: World) -> None:
    world.spawn("a", forever)
    with pytest.raises(NeverHappened):
        world.run_until(lambda: False, within_s=5)
    assert world.now_s == 5
    with pytest.raises(NeverHappened):
        world.run("b", forever)


def test_observers_see_every_turn(world: World) -> None:
    seen: list[tuple[str, float]] = []
    world.observe(lambda process: seen.append((process.name, world.now_s)))

    async def main(_process: Process) -> None:
        for _ in range(3):
            await asyncio.sleep(1)

    world.run("a", main)
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]


def test_automatic_garbage_collection_is_off_only_while_a_world_runs(world: World) -> None:
    async def main(_process: Process) -> bool:
        return gc.isenabled()

    assert not world.run("a", main)
    assert gc.isenabled()


def test_tasks_are_cancelled_in_the_same_order_in_every_run() -> None:
    """asyncio keeps them in sets, whose order would depend on addresses in memory."""

    def run() -> tuple[list[int], int]:
        order: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                order.append(number)

        async def main(process: Process) -> None:
            futures: list[asyncio.Future[None]]
            futures = [process.loop.create_future() for _ in range(50)]
            for number, future in enumerate(set(futures)):
                process.loop.call_later(number, future.set_result, None)
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            order.append([future.done() for future in futures].index(True))
            async with asyncio.TaskGroup() as tasks:
                for number in range(200):
                    tasks.create_task(wait(number))
                await asyncio.sleep(1)
                raise ValueError("planned")

        with World(seed=1, lines_max=0) as world:
            world.spawn("a", main)
            world.run_for(10)
            return order, world.trace.digest

    ballast: list[object] = []
    runs = []
    for _ in range(3):
        runs.append(run())
        ballast += [object() for _ in range(1_000)]
    assert runs[0] == runs[1] == runs[2]


def test_chance_is_decided_by_seed_and_name() -> None:
    def draw(seed: int, what: str) -> float:
        return World(seed, lines_max=0).random_for(what).random()

    assert draw(1, "a") == draw(1, "a")
    assert len({draw(1, "a"), draw(2, "a"), draw(1, "b")}) == 3
