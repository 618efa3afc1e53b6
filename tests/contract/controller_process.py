"""A process that is controller on an SQLite file and never stops working.

It creates topics, deletes every third of them and alters the settings of the others, and prints a
line for each thing once it is acknowledged. `test_controller_on_sqlite.py` kills it.
"""

import asyncio
import sys
from itertools import count
from pathlib import Path
from random import SystemRandom

from tidelog.base.clock import SystemClock
from tidelog.base.errors import ErrorCode
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.config.broker import BrokerConfig
from tidelog.coordination import sqlite
from tidelog.coordination.port import Coordinator
from tidelog.core.controller.image import Endpoint
from tidelog.core.controller.requests import ConfigResource, NewTopic, TopicReference

PARTITIONS = 20


def new_controller(path: Path) -> ControllerRunner:
    async def connect() -> Coordinator:
        return await sqlite.connect(path, session_timeout_ms=60_000, heartbeat_interval_ms=10_000)

    return ControllerRunner(
        connect=connect,
        config=BrokerConfig.load({}),
        endpoints=(Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),),
        clock=SystemClock(),
        chance=SystemRandom(),
    )


def acknowledge(what: str, error: ErrorCode, name: str) -> None:
    assert error is ErrorCode.NONE, (what, name, error)
    sys.stdout.write(f"{what} {name}\n")
    sys.stdout.flush()


async def work(runner: ControllerRunner) -> None:
    for number in count(len(runner.image.topics) * 2):
        name = f"t{number}"
        if name in runner.image.topics:
            continue
        new_topic = NewTopic(name=name, partition_count=PARTITIONS)
        (created,) = await runner.create_topics([new_topic], validate_only=False)
        acknowledge("created", created.error, name)
        if number % 3 == 0:
            (deleted,) = await runner.delete_topics([TopicReference(name=name)])
            acknowledge("deleted", deleted.error, name)
            continue
        settings = (("retention.ms", str(number)),)
        (altered,) = await runner.alter_configs(
            [(ConfigResource(2, name), settings)], validate_only=False
        )
        acknowledge("altered", altered.error, name)


async def main(path: Path) -> None:
    runner = new_controller(path)
    await runner.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runner.run())
        await work(runner)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
