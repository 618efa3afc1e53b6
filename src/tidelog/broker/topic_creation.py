"""Creates topics on first use (P4), each once however many clients ask at the same time.

Those of the coordinators have settings of their own (`broker/internal_topics.py`), whoever asks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tidelog.base.errors import ErrorCode
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.forwarding import Forwarding
from tidelog.core.controller.requests import NewTopic


class TopicCreation:
    """Asks the controller for topics that clients use before anybody made them.

    `delivered` returns once the brokers know of what the controller has decided; `template` says
    how a topic of a name is to be made.
    """

    __slots__ = ("_delivered", "_forwarding", "_requests", "_template", "_under_way")

    def __init__(
        self,
        requests: AdminRequests,
        forwarding: Forwarding | None,
        delivered: Callable[[], Awaitable[None]],
        template: Callable[[str], NewTopic],
    ) -> None:
        self._template = template
        self._requests = requests
        self._forwarding = forwarding
        self._delivered = delivered
        self._under_way: dict[str, asyncio.Future[ErrorCode]] = {}

    def is_under_way(self, name: str) -> bool:
        return name in self._under_way

    async def create_missing(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create `names`, each as its template says; return those that were refused, and why."""
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
            codes = await self._ask(names)
        finally:
            for name, future in futures.items():
                del self._under_way[name]
                future.set_result(codes[name])
        return {
            name: code
            for name, code in codes.items()
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }

    async def _ask(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        topics = [self._template(name) for name in names]
        if self._forwarding is not None and self._forwarding.is_needed:
            codes = await create_topics_elsewhere(self._forwarding, topics)
            if codes is not None:
                return codes
        outcomes = await self._requests.create_topics(topics, validate_only=False)
        await self._delivered()
        return {name: outcome.error for name, outcome in zip(names, outcomes, strict=True)}


async def create_topics_elsewhere(
    forwarding: Forwarding, topics: Sequence[NewTopic]
) -> dict[str, ErrorCode] | None:
    """Have the controller create topics; None if this broker has to do it after all."""
    # On a thread, because the first time it imports the message library.
    request, read_codes = await asyncio.to_thread(_prepare, topics)
    answer = await forwarding.ask(request, "")
    return None if answer is None else read_codes(answer)


def _prepare(
    topics: Sequence[NewTopic],
) -> tuple[bytes, Callable[[bytes], dict[str, ErrorCode]]]:
    from tidelog.broker import topic_messages  # noqa: PLC0415

    return topic_messages.creation_request(topics), topic_messages.creation_codes
