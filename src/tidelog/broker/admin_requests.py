"""What clients and brokers ask of the controller: decided in `core/controller/`, stored, told.

One method for each question. On a broker that is not controller they are refused with
NOT_CONTROLLER; `forwarding.py` takes clients' questions to the broker that is.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicPartition
from tidelog.broker.cluster_session import new_id
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.large_requests import Aside
from tidelog.config.dynamic import replace_topic
from tidelog.coordination.port import CoordinatorUnavailable
from tidelog.core.controller import configs, topics
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    Change,
    PartitionChanged,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.decision import Decision, Outcome
from tidelog.core.controller.election import Elections, partitions_led_by, unclean_elections
from tidelog.core.controller.fitting import Fitting
from tidelog.core.controller.image import NO_SETTINGS, PartitionImage, Settings
from tidelog.core.controller.isr import IsrOutcome, IsrProposal, alter_partitions
from tidelog.core.controller.membership import on_replicas_changed
from tidelog.core.controller.preferred import (
    ElectionOutcome,
    ElectionType,
    elect_leaders,
    rebalance,
)
from tidelog.core.controller.reassignment import (
    Reassignment,
    ReassignmentOutcome,
    alter_reassignments,
    list_reassignments,
)
from tidelog.core.controller.requests import (
    ConfigOutcome,
    ConfigReplacement,
    IncrementalChange,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicOutcome,
    TopicReference,
)
from tidelog.core.controller.shutdown import Shutdown, controlled_shutdown
from tidelog.wire.alter_partition import (
    RECOVERED,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrResult,
)
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

logger = logging.getLogger(__name__)

SHUTDOWN_DELIVERY_WAIT_S = 2.0
NO_STATE = IsrResult(0, 0, -1, -1, (), RECOVERED, -1)


class AdminRequests:
    """Every method is called on the event loop."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller
        chance = controller.random
        self._chance = topics.Chance(chance.randrange, lambda: TopicId(new_id(chance)))

    @property
    def is_controller(self) -> bool:
        return self._controller.is_controller

    @property
    def aside(self) -> Aside:
        """Where to put what takes long into words."""
        return self._controller.aside

    # -- topics ----------------------------------------------------------------------------------

    async def create_topics(
        self, requested: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicOutcome]:
        """One outcome per name, in the order of the request."""

        def decide() -> Decision[TopicOutcome]:
            config = self._controller.config
            fitting = Fitting(self._controller.image, config)

            def validate_configs(settings: Settings) -> None:
                replace_topic(NO_SETTINGS, settings, config)
                fitting.require_topic(settings)

            return topics.create_topics(
                self._controller.image,
                requested,
                defaults=topics.TopicDefaults(
                    num_partitions=config.replication.num_partitions,
                    default_replication_factor=config.replication.default_replication_factor,
                ),
                chance=self._chance,
                validate_configs=validate_configs,
                staying=self._controller.candidates().staying,
            )

        return await self._decide(
            decide,
            self._controller.commit,
            count=sum(max(1, one.partition_count, len(one.assignments)) for one in requested),
            validate_only=validate_only,
        )

    async def create_partitions(
        self, requested: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[TopicOutcome]:
        """One outcome per topic, in the order of the request."""
        return await self._decide(
            lambda: topics.create_partitions(
                self._controller.image,
                requested,
                staying=self._controller.candidates().staying,
            ),
            self._controller.commit,
            count=sum(max(1, one.partition_count) for one in requested),
            validate_only=validate_only,
        )

    async def delete_topics(self, requested: Sequence[TopicReference]) -> list[TopicOutcome]:
        """One outcome per reference, in the order of the request."""
        return await self._decide(
            lambda: topics.delete_topics(
                self._controller.image,
                requested,
                delete_topic_enable=self._controller.config.replication.delete_topic_enable,
            ),
            self._delete,
            count=len(requested),
            validate_only=False,
        )

    async def _delete(self, changes: Sequence[Change]) -> None:
        controller = self._controller
        session, fence = await controller.claimed()
        names = [change.name for change in changes if isinstance(change, TopicDeleted)]
        after = await controller.apply(changes)
        await session.tree.mark_deletions(fence, names)
        controller.publish(after, changes)
        try:
            await session.tree.finish_deletions(fence, names)
        except CoordinatorUnavailable as failure:
            # They are marked, and so gone. Loading again finishes what is left of them.
            logger.warning("deletion unfinished", extra={"topics": names}, exc_info=failure)
            controller.mark_stale()

    async def adopt_topics(self, found: Sequence[TopicCreated], *, producer_end_id: int) -> None:
        """Take over topics whose logs another cluster left on this broker's disks, ids and all.

        Producers of that cluster have ids below `producer_end_id`, which are not given again.
        Raises RequestRefused if that cannot be stored.
        """

        async def carry_out() -> None:
            session, _ = await self._controller.claimed()
            await session.tree.skip_producer_ids(self._controller.config.broker_id, producer_end_id)
            await self._controller.commit(found)

        await self._controller.ask(carry_out)

    # -- settings --------------------------------------------------------------------------------

    async def alter_configs(
        self, requested: Sequence[ConfigReplacement], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        """Replace all settings of each resource (AlterConfigs)."""
        controller = self._controller
        return await self._decide(
            lambda: configs.replace_configs(controller.image, controller.config, requested),
            self._commit_configs,
            count=self._settings_count(requested),
            validate_only=validate_only,
        )

    async def incremental_alter_configs(
        self, requested: Sequence[IncrementalChange], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        """Change single settings of each resource (IncrementalAlterConfigs)."""
        controller = self._controller
        return await self._decide(
            lambda: configs.alter_configs(controller.image, controller.config, requested),
            self._commit_configs,
            count=self._settings_count(requested),
            validate_only=validate_only,
        )

    def _settings_count(
        self, requested: Sequence[ConfigReplacement] | Sequence[IncrementalChange]
    ) -> int:
        """How much has to be looked at: what is set for a broker has to suit every topic."""
        suits_topics = any(each[0].resource_type == ResourceType.BROKER for each in requested)
        return len(requested) + suits_topics * len(self._controller.image.topic_configs)

    async def _commit_configs(self, changes: Sequence[Change]) -> None:
        """What may be led uncleanly from now on is, if nobody else can lead it (R9).

        By the setting of its topic or, where the topic has none, of the brokers.
        """
        controller = self._controller
        await controller.commit(changes)
        topics = {change.topic for change in changes if isinstance(change, TopicConfigChanged)}
        has_defaults = any(isinstance(change, BrokerConfigChanged) for change in changes)
        leaderless = [
            each
            for each in partitions_led_by(controller.image, {NO_BROKER})
            if has_defaults or each.topic in topics
        ]
        if leaderless:
            await controller.commit_elections(
                on_replicas_changed(controller.image, leaderless, controller.candidates())
            )

    # -- leaders and replicas --------------------------------------------------------------------

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> list[ElectionOutcome]:
        """Elect leaders of `partitions`, or of all if it is None (ElectLeaders).

        Raises RequestRefused if nothing could be decided, or not be stored.
        """
        return await self._carry_out(
            lambda: elect_leaders(
                self._controller.image, election_type, partitions, self._controller.candidates()
            ),
            self._commit_states,
            count=self._partition_count() if partitions is None else len(partitions),
        )

    async def alter_reassignments(
        self, requested: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> list[ReassignmentOutcome]:
        """Begin moves of partitions, or take them back (AlterPartitionReassignments).

        Raises RequestRefused if nothing could be decided, or not be stored.
        """
        return await self._carry_out(
            lambda: alter_reassignments(
                self._controller.image,
                requested,
                self._controller.candidates(),
                allow_replication_factor_change=allow_replication_factor_change,
            ),
            self._commit_states,
            count=len(requested),
        )

    async def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None
    ) -> list[tuple[TopicPartition, PartitionImage]]:
        """Those of `partitions` that are being moved, or of all. Raises RequestRefused."""

        async def carry_out() -> list[tuple[TopicPartition, PartitionImage]]:
            await self._controller.claimed()
            return list_reassignments(self._controller.image, partitions)

        return await self._controller.ask(carry_out)

    async def rebalance_leaders(self) -> int:
        """Give leaderships back to preferred replicas where too many are elsewhere (R11).

        Returns how many were. Raises RequestRefused.
        """
        controller = self._controller

        def decide() -> list[PartitionChanged]:
            return rebalance(
                controller.image,
                controller.candidates(),
                imbalance_percentage=(
                    controller.config.replication.leader_imbalance_per_broker_percentage
                ),
            )

        async def carry_out() -> int:
            await controller.claimed()
            changes = await controller.aside.run(decide, count=self._partition_count())
            if changes:
                await controller.commit(changes)
            return len(changes)

        return await controller.ask(carry_out)

    async def _commit_states(self, changes: Sequence[Change]) -> None:
        unclean = unclean_elections(self._controller.image, changes)
        await self._controller.commit(changes)
        self._controller.view.note_unclean(unclean)

    def _partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self._controller.image.topics.values())

    # -- producers -------------------------------------------------------------------------------

    async def allocate_producer_ids(self) -> range:
        """The next 1,000 producer ids, which nobody gets again, whatever crashes.

        Any broker may ask. Raises RequestRefused(COORDINATOR_LOAD_IN_PROGRESS), which makes
        clients try again, while the coordinator does not answer.
        """
        controller = self._controller

        async def carry_out() -> range:
            block = await controller.joined().tree.take_producer_ids(controller.config.broker_id)
            return range(block.first_id, block.end_id)

        try:
            return await controller.ask(carry_out)
        except RequestRefused as refusal:
            raise RequestRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, refusal.message) from None

    # -- in-sync sets ----------------------------------------------------------------------------

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """What a leader proposes about its in-sync sets (R6)."""
        sender = BrokerId(request.broker_id)
        proposals = [
            IsrProposal(
                topic_id=TopicId(UUID(bytes=topic_id)),
                partition=one.partition,
                leader_epoch=LeaderEpoch(one.leader_epoch),
                partition_epoch=one.partition_epoch,
                isr=tuple(
                    (BrokerId(each.broker_id), each.broker_epoch)
                    for each in one.new_isr_with_epochs
                ),
            )
            for topic_id, partitions in request.topics
            for one in partitions
        ]

        def decide() -> Decision[IsrOutcome]:
            return alter_partitions(
                self._controller.image,
                proposals,
                self._controller.candidates(),
                sender=sender,
                sender_epoch=request.broker_epoch,
            )

        async def carry_out() -> list[IsrOutcome]:
            await self._controller.claimed()
            decision = await self._controller.aside.run(decide, count=len(proposals))
            if decision.changes:
                await self._controller.commit(decision.changes)
            return decision.outcomes

        try:
            outcomes = await self._controller.ask(carry_out)
        except RequestRefused as refusal:
            return AlterPartitionResponse(0, refusal.code, [])
        if any(outcome.state is None for outcome in outcomes):
            # Whoever proposes against an old state has missed something.
            self._controller.repeat_roles(sender)
        for broker_id in self._held_to_be_broken(outcomes, proposals):
            self._controller.repeat_roles(broker_id)
        return _alter_partition_response(outcomes)

    def _held_to_be_broken(
        self, outcomes: Sequence[IsrOutcome], proposals: Sequence[IsrProposal]
    ) -> set[BrokerId]:
        """Brokers whose replicas follow, as their leaders see, while we take them for broken.

        The news that they work must have been lost.
        """
        topic_names = self._controller.image.topic_names
        return {
            member
            for outcome, proposal in zip(outcomes, proposals, strict=True)
            if outcome.error is ErrorCode.INELIGIBLE_REPLICA and proposal.topic_id in topic_names
            for member in proposal.members
            if self._controller.view.is_offline(
                TopicPartition(topic_names[proposal.topic_id], proposal.partition), member
            )
        }

    # -- stopping --------------------------------------------------------------------------------

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Move leaderships away from a broker that is about to stop (C5)."""
        broker_id = BrokerId(request.broker_id)
        controller = self._controller

        def decide() -> Shutdown:
            return controlled_shutdown(
                controller.image,
                controller.candidates(),
                broker_id=broker_id,
                broker_epoch=request.broker_epoch,
            )

        async def carry_out() -> list[TopicPartition]:
            await controller.claimed()
            given_up = await controller.aside.run(decide, count=self._partition_count())
            controller.view.shutting_down[broker_id] = request.broker_epoch
            await controller.commit_elections(Elections(given_up.changes, given_up.unclean))
            return given_up.remaining

        try:
            remaining = await controller.ask(carry_out)
        except RequestRefused as refusal:
            return ControlledShutdownResponse(refusal.code, [])
        await controller.delivered(SHUTDOWN_DELIVERY_WAIT_S)
        return ControlledShutdownResponse(
            ErrorCode.NONE, [(one.topic, one.partition) for one in remaining]
        )

    # --------------------------------------------------------------------------------------------

    async def _decide(
        self,
        decide: Callable[[], Decision[Outcome]],
        write: Callable[[Sequence[Change]], Awaitable[None]],
        *,
        count: int,
        validate_only: bool,
    ) -> list[Outcome]:
        """One outcome for each part of a request, also where it is the whole that was refused."""
        controller = self._controller
        try:
            return await self._carry_out(
                decide, _write_nothing if validate_only else write, count=count
            )
        except RequestRefused as refusal:
            message = refusal.message or refusal.code.name
            decision = await controller.aside.run(decide, count=count)
            if refusal.code is ErrorCode.NOT_CONTROLLER:
                return decision.void(refusal.code, message)
            return decision.failed(refusal.code, message)

    async def _carry_out(
        self,
        decide: Callable[[], Decision[Outcome]],
        write: Callable[[Sequence[Change]], Awaitable[None]],
        *,
        count: int,
    ) -> list[Outcome]:
        """Raises RequestRefused if this broker may not decide, or the decision cannot be stored."""
        controller = self._controller

        async def carry_out() -> list[Outcome]:
            await controller.claimed()
            decision = await controller.aside.run(decide, count=count)
            if decision.changes:
                await write(decision.changes)
            return decision.outcomes

        return await controller.ask(carry_out)


async def _write_nothing(_changes: Sequence[Change]) -> None:
    """Where it was only asked whether it could be done."""


def _alter_partition_response(outcomes: Sequence[IsrOutcome]) -> AlterPartitionResponse:
    results: dict[bytes, list[IsrResult]] = {}
    for outcome in outcomes:
        result = NO_STATE._replace(partition=outcome.partition, error_code=outcome.error)
        state = outcome.state
        if state is not None:
            result = result._replace(
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                partition_epoch=state.partition_epoch,
            )
        results.setdefault(outcome.topic_id.bytes, []).append(result)
    return AlterPartitionResponse(0, ErrorCode.NONE, list(results.items()))
