"""Gives leaderships back to preferred replicas from time to time (R11).

Brokers that die and return lead nothing afterwards. With `auto.leader.rebalance.enable`, whoever is
controller looks every `leader.imbalance.check.interval.seconds`; the rule is in
`core/controller/preferred.py`.
"""

import asyncio
import logging
from typing import Protocol

from tidelog.base.errors import RequestRefused
from tidelog.config.replication import ReplicationConfig

logger = logging.getLogger(__name__)


class Rebalancing(Protocol):
    """What is needed of the controller."""

    @property
    def is_controller(self) -> bool: ...

    async def rebalance_leaders(self) -> int:
        """How many leaderships were given back. Raises RequestRefused."""
        ...


async def balance_leaders(controller: Rebalancing, config: ReplicationConfig) -> None:
    """Look until cancelled, if it is asked for at all."""
    while config.auto_leader_rebalance_enable:
        await asyncio.sleep(config.leader_imbalance_check_interval_seconds)
        if not controller.is_controller:
            continue
        try:
            count = await controller.rebalance_leaders()
        except RequestRefused as refusal:
            logger.info("leaders are not balanced now", extra={"reason": refusal.message})
        else:
            if count:
                logger.info("leaderships given back", extra={"partitions": count})
