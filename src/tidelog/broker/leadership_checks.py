"""Makes sure that this broker still leads, before it says something final.

A leader may have been succeeded without knowing it: its controller does not reach it. What it
acknowledges is safe all the same, because that waits for followers, and they have gone to another.
What it refuses is not. It has not seen what its successor has appended, so what comes next looks
out of order to it, and a producer that is told OUT_OF_ORDER_SEQUENCE_NUMBER begins anew, under
another id or epoch, with what the successor already holds. Then it is there twice.

    doubts of one turn ──▶ one transaction of checks ──▶ all are as they were: sure
                                      │
                                      └─ refused ──▶ each on its own: sure, or succeeded

A check compares the version of a partition's state node with the one that the leader knows; whoever
becomes leader has changed that node before (C4). It begins after the doubt, so that it sees
whatever the producer may have seen. Who cannot be sure is as one who does not lead: the producer
looks for the leader again.
"""

import asyncio
from collections.abc import Callable, Sequence

from tidelog.base.errors import ErrorCode, RequestRefused, SessionLost
from tidelog.broker.append_queue import Settle
from tidelog.broker.cluster_tree import ClusterTree
from tidelog.broker.produce_results import refused_partition
from tidelog.broker.served_partition import ServedPartition
from tidelog.coordination.port import CoordinatorUnavailable
from tidelog.core.partition.leader import PartitionLeader
from tidelog.wire.produce import PartitionProduceResult

CHECKED_AT_ONCE_MAX = 200
# A client that sends nothing but nonsense must not keep the coordinator busy.
PAUSE_S = 0.01

_Led = tuple[ServedPartition, PartitionLeader]
_Refusal = tuple[PartitionProduceResult, Settle]


class LeadershipChecks:
    """Every method is called on the event loop; `run` asks the coordinator."""

    def __init__(self, tree: Callable[[], ClusterTree]) -> None:
        """`tree`: of the session there is now. Raises RequestRefused if there is none."""
        self._tree = tree
        self._doubts: dict[ServedPartition, list[_Refusal]] = {}
        self._wake = asyncio.Event()

    def refuse_if_leading(
        self, runner: ServedPartition, refused: PartitionProduceResult, settle: Settle
    ) -> None:
        """Settle with `refused` if this broker surely leads, else so that others are asked."""
        self._doubts.setdefault(runner, []).append((refused, settle))
        self._wake.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._wake.wait()  # Ended by a doubt.
            self._wake.clear()
            doubts, self._doubts = self._doubts, {}
            runners = list(doubts)
            for start in range(0, len(runners), CHECKED_AT_ONCE_MAX):
                some = runners[start : start + CHECKED_AT_ONCE_MAX]
                sure = await self._surely_led(some)
                for runner in some:
                    _settle(runner, doubts[runner], is_sure=runner in sure)
            await asyncio.sleep(PAUSE_S)

    async def _surely_led(self, runners: Sequence[ServedPartition]) -> set[ServedPartition]:
        led = [(runner, runner.leader) for runner in runners if runner.leader is not None]
        unchanged = led if await self._are_unchanged(led) else []
        if not unchanged and len(led) > 1:
            unchanged = [one for one in led if await self._are_unchanged([one])]
        return {runner for runner, leader in unchanged if runner.leader is leader}

    async def _are_unchanged(self, led: Sequence[_Led]) -> bool:
        versions = {runner.topic_partition: leader.isr_version for runner, leader in led}
        try:
            return await self._tree().are_states_unchanged(versions)
        except (CoordinatorUnavailable, SessionLost, RequestRefused):
            return False


def _settle(runner: ServedPartition, refusals: Sequence[_Refusal], *, is_sure: bool) -> None:
    elsewhere = refused_partition(runner.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    for refused, settle in refusals:
        settle(refused if is_sure else elsewhere)
