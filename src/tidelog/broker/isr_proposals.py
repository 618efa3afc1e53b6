"""Takes what leaders propose about their in-sync sets to the controller, and the answers back.

    leaders ──ProposeIsr──▶ proposals of one turn ──▶ AlterPartition ──▶ controller
       ▲                                                                   │
       └────────────── changed, refused, or nobody knows: again ◀──────────┘

However many partitions propose at once, it is one request. As long as it is not known whether a
proposal was heard it is made again, the same one: the leader counts on the larger of the two sets
meanwhile (`core/partition/leader.py`).
"""

import asyncio
import logging
from collections.abc import Callable

from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ids import BrokerId
from tidelog.broker.controller_link import ControllerLink
from tidelog.broker.peers import PeerUnreachable
from tidelog.broker.served_partition import ServedPartition
from tidelog.core.partition.effects import ProposeIsr
from tidelog.wire.alter_partition import (
    RECOVERED,
    AlterPartitionRequest,
    IsrMember,
    IsrProposal,
    IsrResult,
)

logger = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.05
RETRY_BACKOFF_MAX_S = 1.0
# A broker that comes back has hundreds of partitions that all propose the same.
LOGGED_MAX = 20

Key = tuple[bytes, int]
_Proposed = dict[Key, tuple[ServedPartition, ProposeIsr]]

# After these the partition's state is another than the leader knows; the controller tells it which.
_OUTDATED = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class IsrProposals:
    """Every method is called on the event loop; `run` sends."""

    def __init__(
        self,
        link: ControllerLink,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._proposed: _Proposed = {}
        self._wake = asyncio.Event()
        self._backoff_s = RETRY_BACKOFF_S

    def propose(self, runner: ServedPartition, proposal: ProposeIsr) -> None:
        """Take `proposal` to the controller; `runner` hears what becomes of it."""
        self._proposed[runner.topic_id.bytes, runner.partition] = runner, proposal
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()  # Ended by a proposal.
            self._wake.clear()
            proposed, self._proposed = self._proposed, {}
            asked = {key: one for key, one in proposed.items() if _is_current(*one)}
            _log(asked)
            left_open = await self._ask(asked) if asked else {}
            if not left_open:
                self._backoff_s = RETRY_BACKOFF_S
                continue
            self._proposed = {**left_open, **self._proposed}
            self._wake.set()
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, RETRY_BACKOFF_MAX_S)

    async def _ask(self, asked: _Proposed) -> _Proposed:
        """Those of which it is not known what has become of them."""
        try:
            response = await self._link.alter_partition(self._request(asked))
        except (PeerUnreachable, WireError) as error:
            logger.debug("controller does not answer", extra={"reason": error})
            return asked
        if response.error_code != ErrorCode.NONE:
            logger.debug("proposals refused", extra={"error": response.error_code})
            return asked
        left_open = dict(asked)
        for topic_id, results in response.topics:
            for result in results:
                one = asked.get((topic_id, result.partition))
                # Who knows less than the leader is not controller; the one that is may have taken
                # this very proposal.
                if one is not None and result.error_code != ErrorCode.NOT_CONTROLLER:
                    left_open.pop((topic_id, result.partition), None)
                    _settle(*one, result)
        return left_open

    def _request(self, asked: _Proposed) -> AlterPartitionRequest:
        epoch = self._broker_epoch()
        topics: dict[bytes, list[IsrProposal]] = {}
        for (topic_id, partition), (_, proposal) in asked.items():
            members = tuple(
                IsrMember(each, proposal.broker_epochs.get(each, epoch))
                for each in sorted(proposal.isr)
            )
            topics.setdefault(topic_id, []).append(
                IsrProposal(
                    partition,
                    proposal.leader_epoch,
                    members,
                    RECOVERED,
                    proposal.expected_version,
                )
            )
        return AlterPartitionRequest(self._broker_id, epoch, list(topics.items()))


def _log(asked: _Proposed) -> None:
    if len(asked) > LOGGED_MAX:
        logger.info("isr proposed", extra={"partitions": len(asked)})
        return
    for runner, proposal in asked.values():
        logger.info(
            "isr proposed",
            extra={
                "partition": runner.topic_partition,
                "isr": sorted(proposal.isr),
                "leader_epoch": proposal.leader_epoch,
            },
        )


def _is_current(runner: ServedPartition, proposal: ProposeIsr) -> bool:
    """Whether the leader that made the proposal still waits for an answer to it."""
    leader = runner.leader
    return (
        leader is not None
        and leader.leader_epoch == proposal.leader_epoch
        and leader.isr_version == proposal.expected_version
        and leader.isr_in_flight == proposal.isr
    )


def _settle(runner: ServedPartition, proposal: ProposeIsr, result: IsrResult) -> None:
    if not _is_current(runner, proposal):
        return
    code = result.error_code
    if code == ErrorCode.NONE:
        runner.on_isr_changed(frozenset(map(BrokerId, result.isr)), version=result.partition_epoch)
    elif code in _OUTDATED:
        # Perhaps by this very proposal, made before and answered into the void. The controller
        # says what the state is; until then the larger set counts.
        logger.info(
            "proposal is outdated",
            extra={"partition": runner.topic_partition, "error": code},
        )
    else:
        # While a member stops, or its disk is away, it is proposed and refused again and again.
        logger.debug("isr refused", extra={"partition": runner.topic_partition, "error": code})
        runner.on_isr_refused(proposal)
