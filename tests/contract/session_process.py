"""A process with one session at `sqlite:PATH` or `zookeeper:HOSTS`, told by its input what to do.

Each line is a command, each answer a line; tests kill, stop and watch it (`session_child.py`).

    hold PATH          create PATH as an ephemeral node; answers "held"
    count PATH         forever: write the next number to PATH and PATH-copy in one transaction,
                       and answer that number once it is acknowledged
    block SECONDS      keep the event loop busy, then answer "blocked"
    fill PATH BYTES    forbid files larger than BYTES, write until the store refuses, answer how;
                       then allow them again and answer whether a write succeeds
    wait               answer "lost" when the session is lost
"""

import asyncio
import resource
import sys
import time
from pathlib import Path

from tidelog.coordination import sqlite, zookeeper
from tidelog.coordination.port import Coordinator, CoordinatorUnavailable, Set


def answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def connect(where: str, session_timeout_ms: int) -> Coordinator:
    kind, _, place = where.partition(":")
    if kind == "zookeeper":
        return await zookeeper.connect(
            place, session_timeout_ms=session_timeout_ms, connection_timeout_ms=15_000
        )
    return await sqlite.connect(
        Path(place),
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=session_timeout_ms // 4,
    )


async def main(where: str, session_timeout_ms: int) -> None:
    session = await connect(where, session_timeout_ms)
    answer(f"session {session.session_id}")
    while line := await asyncio.to_thread(sys.stdin.readline):
        await obey(session, line.split())
    await session.close()


async def obey(session: Coordinator, words: list[str]) -> None:
    match words:
        case ["hold", node]:
            await session.create(node, b"", ephemeral=True)
            answer("held")
        case ["count", node]:
            await count(session, node)
        case ["block", seconds]:
            time.sleep(float(seconds))  # noqa: ASYNC251 - to hold the loop up is the point
            answer("blocked")
        case ["fill", node, size_bytes]:
            await fill(session, node, int(size_bytes))
        case ["wait"]:
            await session.session_lost()
            answer("lost")


async def count(session: Coordinator, node: str) -> None:
    await session.ensure(node)
    await session.ensure(f"{node}-copy")
    number = 0
    while True:
        number += 1
        value = b"%d" % number
        await session.transact([Set(node, value), Set(f"{node}-copy", value)])
        answer(str(number))


async def fill(session: Coordinator, node: str, size_bytes: int) -> None:
    await session.ensure(node)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    written = 0
    try:
        while True:
            await session.create(f"{node}/{written}", b"x" * 1_000)
            written += 1
    except CoordinatorUnavailable as error:
        answer(f"refused after {written}: {error}")
    assert len(await session.children(node)) == written
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await session.create(f"{node}/after", b"")
    answer("recovered")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
