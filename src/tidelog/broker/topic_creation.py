"""Creates topics on first use (P4), each once however many clients ask at the same time."""

import asyncio
from collections.abc import Sequence

from tidelog.base.errors import ErrorCode
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.replicas import Replicas
from tidelog.core.controller.requests import NewTopic


class TopicCreation:
    """Asks the controller for topics that clients use before anybody made them."""

    __slots__ = ("_controller", "_replicas", "_under_way")

    def __init__(self, controller: ControllerRunner, replicas: Replicas) -> None:
        self._controller = controller
        self._replicas = replicas
        self._under_way: dict[str, asyncio.Future[ErrorCode]] = {}

    async def create_missing(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create `names` with the default settings; return those that were refused, and why."""
        ours = [name for name in dict.fromkeys(names) if name not in self._under_way]
        theirs = {name: self._under_way[name] for name in names if name in self._under_way}
        refused = await self._create(ours) if ours else {}
        for name, future in theirs.items():
            code = await asyncio.shield(future)  # Others wait for the same.
            if code is not ErrorCode.NONE:
                refused[name] = code
        return refused

    async def _create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        loop = asyncio.get_running_loop()
        futures = {name: loop.create_future() for name in names}
        self._under_way.update(futures)
        codes = dict.fromkeys(names, ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            outcomes = await self._controller.create_topics(
                [NewTopic(name=name) for name in names], validate_only=False
            )
            await self._replicas.settled()
            codes = {name: outcome.error for name, outcome in zip(names, outcomes, strict=True)}
        finally:
            for name, future in futures.items():
                del self._under_way[name]
                future.set_result(codes[name])
        return {
            name: code
            for name, code in codes.items()
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
