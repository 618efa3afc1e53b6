"""A process that is controller at `sqlite:PATH` or `zookeeper:HOSTS` and never stops working.

It creates topics, deletes every third of them and alters the settings of the others, and prints a
line for each thing once it is acknowledged. `test_controller_killed.py` kills it.
"""

import asyncio
import sys
from itertools import count
from random import SystemRandom

from tests.contract import session_process
from tidelog.base.clock import SystemClock
from tidelog.base.errors import ErrorCode
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.config.broker import BrokerConfig
from tidelog.coordination.port import Coordinator
from tidelog.core.controller.image import ClusterImage, Endpoint, LastStop
from tidelog.core.controller.requests import ConfigResource, NewTopic, TopicReference

PARTITIONS = 20


def new_controller(where: str) -> ControllerRunner:
    async def connect() -> Coordinator:
        # ZooKeeper notices the death of a process by nothing but the end of its session.
        timeout_ms = 60_000 if where.startswith("sqlite:") else 2_000
        return await session_process.connect(where, timeout_ms)

    return ControllerRunner(
        connect=connect,
        config=BrokerConfig.load({}),
        clock=SystemClock(),
        chance=SystemRandom(),
    )


async def start(runner: ControllerRunner) -> ClusterImage:
    await runner.join(None)
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092)
    await runner.register((endpoint,), LastStop.CLEAN)
    return runner.image


def acknowledge(what: str, error: ErrorCode, name: str) -> None:
    assert error is ErrorCode.NONE, (what, name, error)
    sys.stdout.write(f"{what} {name}\n")
    sys.stdout.flush()


async def work(runner: ControllerRunner) -> None:
    requests = AdminRequests(runner)
    for number in count(len(runner.image.topics) * 2):
        name = f"t{number}"
        if name in runner.image.topics:
            continue
        new_topic = NewTopic(name=name, partition_count=PARTITIONS)
        (created,) = await requests.create_topics([new_topic], validate_only=False)
        acknowledge("created", created.error, name)
        if number % 3 == 0:
            (deleted,) = await requests.delete_topics([TopicReference(name=name)])
            acknowledge("deleted", deleted.error, name)
            continue
        settings = (("retention.ms", str(number)),)
        (altered,) = await requests.alter_configs(
            [(ConfigResource(2, name), settings)], validate_only=False
        )
        acknowledge("altered", altered.error, name)


async def main(where: str) -> None:
    runner = new_controller(where)
    await start(runner)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runner.run())
        await work(runner)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
