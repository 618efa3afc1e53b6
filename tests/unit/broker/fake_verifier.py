"""A transaction coordinator that says what a test wants, when it wants."""

import asyncio

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.broker.transaction_verifier import Codes, Question


class FakeVerifier:
    """Vouches for everything, unless it was told otherwise."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self._may_answer = asyncio.Event()
        self._may_answer.set()

    def hold(self) -> None:
        """Answer nobody."""
        self._may_answer.clear()

    def release(self) -> None:
        self._may_answer.set()

    async def verify(self, question: Question) -> Codes:
        self.asked.append(question)
        await self._may_answer.wait()
        return {one: self.codes.get(one, ErrorCode.NONE) for one in question.partitions}
