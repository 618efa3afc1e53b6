"""The controller's side of what brokers ask it, as far as this broker is the controller."""

from tidelog.base.errors import ErrorCode
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.nodes import ControllerClaim
from tidelog.wire.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


class LocalControllerSide:
    """Answers in this process; refuses with NOT_CONTROLLER what is for somebody else."""

    def __init__(self, controller: ControllerRunner, requests: AdminRequests) -> None:
        self._controller = controller
        self._requests = requests

    @property
    def is_controller(self) -> bool:
        return self._controller.is_controller

    @property
    def claim(self) -> ControllerClaim:
        return self._controller.claim

    @property
    def image(self) -> ClusterImage:
        return self._controller.image

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if not self.is_controller:
            return AlterPartitionResponse(0, ErrorCode.NOT_CONTROLLER, [])
        return await self._requests.alter_partition(request)

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        if not self.is_controller:
            return ControlledShutdownResponse(ErrorCode.NOT_CONTROLLER, [])
        return await self._requests.controlled_shutdown(request)
