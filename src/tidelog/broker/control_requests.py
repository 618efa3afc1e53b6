"""What the controller tells this broker: checked, then done, one request at a time (C3).

    LeaderAndIsr      who leads, who follows: the only source of roles
    StopReplica       replicas that are not this broker's any more
    UpdateMetadata    the cluster, for clients and for whoever looks something up

A request is refused unless it comes from the controller of the newest epoch, and is meant for this
registration of this broker. An epoch that is not known yet is looked up in the coordinator, where
the controller has also left a token: only who can read that can speak as the controller.

The three come in one go, in this order. Whoever has refused the metadata refuses the roles as well,
until the controller has told both again: who leads a partition acts upon the image, and a
coordinator of transactions sends no markers to topics that are not in it.

One request may be about every partition there is. It is translated aside or in turns, so that
clients are served meanwhile, and looked at again afterwards: its sender may have been succeeded.
"""

import asyncio
import hmac
import logging
from functools import partial
from typing import Protocol
from uuid import UUID

from tidelog.base.errors import (
    ErrorCode,
    RequestRefused,
    SessionLost,
)
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tidelog.broker import cluster_messages as messages
from tidelog.broker.large_requests import Aside, in_turns
from tidelog.broker.replicas import Replicas, Role, StoppedRole
from tidelog.coordination.port import CoordinatorUnavailable
from tidelog.core.controller.changes import Change
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.nodes import ControllerClaim
from tidelog.wire.cluster_states import ControlHeader, FailedPartition
from tidelog.wire.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.wire.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger(__name__)


class Membership(Protocol):
    """What is known of the claims in this cluster, and the image they lead to."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration; -1 while it has none."""
        ...

    @property
    def claim(self) -> ControllerClaim: ...

    @property
    def aside(self) -> Aside:
        """Where to compute what takes long."""
        ...

    async def look_up_claim(self) -> ControllerClaim:
        """The newest claim, from the coordinator. Raises CoordinatorUnavailable, SessionLost."""
        ...

    def follow(self, changes: list[Change]) -> None:
        """The cluster has become what the controller says."""
        ...


class ControlRequests:
    """Every method is called on the event loop; they take effect in the order of the calls."""

    def __init__(self, membership: Membership, replicas: Replicas) -> None:
        self._membership = membership
        self._replicas = replicas
        self._turn = asyncio.Lock()
        self._unheard: ControlHeader | None = None
        """Of the last metadata, if that was refused."""

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        async with self._turn:
            try:
                await self._admit(request.header)
                self._membership.follow(await self._changes(request))
            except RequestRefused as refusal:
                self._unheard = request.header
                return UpdateMetadataResponse(self._refused("UpdateMetadata", refusal))
            self._unheard = None
            return UpdateMetadataResponse(ErrorCode.NONE)

    async def _changes(self, request: UpdateMetadataRequest) -> list[Change]:
        """What is new in it, as of the newest image. Raises RequestRefused."""
        membership = self._membership
        count = sum(len(topic.partitions) for topic in request.topics)
        while True:  # Ends: hardly anything but this changes the image.
            image = membership.image
            changes = await membership.aside.run(
                partial(messages.changes_from, image, request), count=count
            )
            await self._admit(request.header)
            if membership.image is image:
                return changes

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        async with self._turn:
            try:
                await self._admit(request.header)
                states = {
                    one: state
                    async for one, state in in_turns(messages.partitions_of(request.topics))
                }
                await self._admit(request.header)
                self._require_metadata(request.header)
            except RequestRefused as refusal:
                return LeaderAndIsrResponse(self._refused("LeaderAndIsr", refusal), [])
            failed = await self._replicas.become(
                {one: Role(topic_id, state) for one, (topic_id, state) in states.items()},
                {BrokerId(broker_id): epoch for broker_id, epoch in request.live_brokers},
            )
            if request.is_full and request.header.broker_epoch == self._membership.broker_epoch:
                self._replicas.on_all_told(
                    [(topic_id, one.partition) for one, (topic_id, _) in states.items()]
                )
            return LeaderAndIsrResponse(
                ErrorCode.NONE,
                [
                    FailedPartition(states[one][0].bytes, one.partition, code)
                    for one, code in failed.items()
                ],
            )

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        async with self._turn:
            try:
                await self._admit(request.header)
            except RequestRefused as refusal:
                return StopReplicaResponse(self._refused("StopReplica", refusal), [])
            self._replicas.stop_replicas(
                {
                    TopicPartition(one.topic, one.partition): StoppedRole(
                        TopicId(UUID(bytes=one.topic_id)), LeaderEpoch(one.leader_epoch), one.delete
                    )
                    for one in request.partitions
                }
            )
            return StopReplicaResponse(ErrorCode.NONE, [])

    async def _admit(self, header: ControlHeader) -> None:
        """Raises RequestRefused unless the controller speaks, to this life of this broker."""
        membership = self._membership
        if header.controller_epoch > membership.claim.controller_epoch:
            try:
                await membership.look_up_claim()
            except (CoordinatorUnavailable, SessionLost) as error:
                raise RequestRefused(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from None
        claim = membership.claim
        if header.broker_epoch != membership.broker_epoch:
            raise RequestRefused(ErrorCode.STALE_BROKER_EPOCH)
        if header.controller_epoch < claim.controller_epoch:
            raise RequestRefused(ErrorCode.STALE_CONTROLLER_EPOCH)
        if (
            header.controller_epoch != claim.controller_epoch
            or header.controller_id != claim.controller_id
            or not hmac.compare_digest(header.token, claim.token)
        ):
            raise RequestRefused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not sent by the controller"
            )

    def _require_metadata(self, header: ControlHeader) -> None:
        """Raises RequestRefused if what this speaker said before the roles was not heard.

        Others do not have its token, and so cannot have it refused.
        """
        if header == self._unheard:
            raise RequestRefused(
                ErrorCode.BROKER_NOT_AVAILABLE, "the metadata that came before was refused"
            )

    def _refused(self, request: str, refusal: RequestRefused) -> ErrorCode:
        logger.info(
            "request of a controller refused",
            extra={"request": request, "error": refusal.code.name, "reason": refusal.message},
        )
        return refusal.code
