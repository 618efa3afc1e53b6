"""A controller that is killed while it works loses nothing that it acknowledged (C1, G4)."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import tidelog
from tests.contract.controller_process import PARTITIONS, new_controller, start
from tests.contract.coordinator_stores import on_loop
from tests.contract.ensemble import SharedEnsemble
from tidelog.core.controller.image import ClusterImage

SOURCE = Path(tidelog.__file__).parents[1]
ROOT = SOURCE.parent


def killed_after(where: str, line_count: int) -> list[str]:
    """Let a controller work, kill it after some acknowledgements, return all of them."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.controller_process", where],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}"},
    )
    assert process.stdout is not None
    with process.stdout:
        lines = [process.stdout.readline() for _ in range(line_count)]
        process.kill()
        lines += process.stdout.readlines()
    process.wait()
    assert all(line.endswith("\n") for line in lines[:line_count])
    return [line.strip() for line in lines if line.endswith("\n")]


def check(image: ClusterImage, acknowledged: list[str]) -> None:
    done = {tuple(line.split()) for line in acknowledged}
    for what, name in done:
        if what == "created" and ("deleted", name) not in done:
            # The very last one may have been deleted without a chance to say so.
            assert name in image.topics or int(name[1:]) % 3 == 0
        if what == "deleted":
            assert name not in image.topics
        if what == "altered":
            assert image.topic_config(name) == {"retention.ms": name[1:]}
    for topic in image.topics.values():
        assert len(topic.partitions) == PARTITIONS


@on_loop
async def test_whatever_was_acknowledged_before_a_kill_is_there_after_it_on_sqlite(
    tmp_path: Path,
) -> None:
    await kill_again_and_again(f"sqlite:{tmp_path / 'coordination.db'}", round_count=6)


@on_loop
async def test_whatever_was_acknowledged_before_a_kill_is_there_after_it_on_zookeeper(
    ensemble: SharedEnsemble,
) -> None:
    await kill_again_and_again(f"zookeeper:{ensemble.new_hosts()}", round_count=2)


async def kill_again_and_again(where: str, round_count: int) -> None:
    acknowledged: list[str] = []
    for number in range(round_count):
        acknowledged += await asyncio.to_thread(killed_after, where, 5 + 3 * number)
        runner = new_controller(where)
        image = await start(runner)
        assert runner.is_controller
        check(image, acknowledged)
        await runner.stop()
