"""A process ends when its broker has stopped, whoever still waits for something."""

import asyncio

import pytest

from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.node import end_left_tasks


@in_virtual_time
async def test_task_that_is_about_to_finish_is_let_finish() -> None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(asyncio.sleep(1, "done"))
        await end_left_tasks(2)
    assert task.result() == "done"


@in_virtual_time
async def test_task_that_waits_for_ever_is_named_and_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(asyncio.Event().wait(), name="forgotten")
        await end_left_tasks(2)
    assert task.cancelled()
    assert [record.message for record in caplog.records] == [
        "task was left when the broker had stopped"
    ]


@in_virtual_time
async def test_task_that_another_begins_as_its_last_deed_is_ended() -> None:
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        begun: list[asyncio.Task[bool]] = []

        async def begin() -> None:
            await asyncio.sleep(1)
            begun.append(tasks.create_task(asyncio.Event().wait()))

        tasks.create_task(begin())
        await end_left_tasks(2)
    assert begun[0].cancelled()
