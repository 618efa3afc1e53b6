"""The history of a run, and its digest."""

import asyncio
import logging

from tidelog.sim.process import Process
from tidelog.sim.world import World

logger = logging.getLogger("tidelog.sim_test")


async def talk(process: Process) -> None:
    logger.info("began", extra={"partition": "orders-0", "reason": "two words"})
    await asyncio.sleep(1.5)
    logger.debug("not asked for")
    try:
        raise OSError("planned")
    except OSError:
        logger.warning("failed", exc_info=True)
    process.kill()
    logger.error("a dead process says nothing")


def test_log_lines_carry_virtual_time_and_their_process() -> None:
    with World(seed=1, lines_max=100) as world, world.capturing_logs(logging.INFO):
        world.spawn("broker-1", talk)
        world.run_for(2)
        logger.info("from outside")
    lines = [str(line) for line in world.trace.lines]
    assert lines == [
        "    0.000000 broker-1     process started",
        '    0.000000 broker-1     INFO began partition=orders-0 reason="two words"',
        "    1.500000 broker-1     WARNING failed error=OSError('planned')",
        "    1.500000 broker-1     process killed",
        "    2.000000 world        INFO from outside",
    ]
    assert world.trace.history() == "".join(f"{line}\n" for line in lines)


def test_loggers_are_as_before_afterwards() -> None:
    root = logging.getLogger("tidelog")
    before = root.handlers[:], root.level, root.propagate
    with World(seed=1, lines_max=0) as world, world.capturing_logs(logging.DEBUG):
        assert root.level == logging.DEBUG
    assert (root.handlers[:], root.level, root.propagate) == before


def test_a_history_is_bounded() -> None:
    with World(seed=1, lines_max=3) as world:
        for number in range(10):
            world.trace.note("world", f"event {number}", {})
    assert [line.phrase for line in world.trace.lines] == ["event 7", "event 8", "event 9"]


def test_the_digest_does_not_depend_on_what_is_kept_of_the_history() -> None:
    def digest(lines_max: int, delay_s: float) -> int:
        async def main(_process: Process) -> None:
            await asyncio.sleep(delay_s)

        with World(seed=1, lines_max=lines_max) as world:
            world.spawn("a", main)
            world.run_for(10)
        return world.trace.digest

    assert digest(0, 1.0) == digest(100, 1.0)
    assert digest(0, 1.0) != digest(0, 2.0)
