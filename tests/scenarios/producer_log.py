"""One log and the idempotent producers that write to it.

log [producer.id.expiration.ms=86400000]
send producer=7 [epoch=0] sequence=0 [records=1]
advance ms=1000      time passes and silent producers expire
restart              state is brought back from a snapshot
"""

from tests.scenarios.transcript import Command
from tidelog.base.errors import RequestRefused
from tidelog.base.ids import Offset
from tidelog.core.transactions.producers import ProducerStates
from tidelog.records.batch import BatchHeader


class ProducerLog:
    """Appends what the real machine lets through."""

    def __init__(self, command: Command) -> None:
        self.expiration_ms = command.number_or("producer.id.expiration.ms", 86_400_000)
        self.producers = self._fresh()
        self.end = Offset(0)
        self.now_ms = 0

    def perform(self, command: Command) -> list[str]:
        match command.name:
            case "send":
                return [self._send(command)]
            case "advance":
                self.now_ms += command.number("ms")
                return [f"expired: {self.producers.on_tick(self.now_ms)}"]
            case "restart":
                entries = self.producers.entries()
                self.producers = self._fresh()
                self.producers.restore(entries, end_offset=self.end)
                return []
        raise AssertionError(f"unknown command {command.name}")

    def state(self) -> list[str]:
        return [f"log: end={self.end}"]

    def _send(self, command: Command) -> str:
        header = self._header(command)
        try:
            copy = self.producers.on_batch(header)
        except RequestRefused as refused:
            return f"refused: {refused.code.name}"
        if copy is not None:
            return f"repeated: offsets={copy.base_offset}..{copy.last_offset}"
        base_offset = self.end
        self.end = Offset(base_offset + header.record_count)
        self.producers.on_appended(header, base_offset=base_offset, timestamp_ms=self.now_ms)
        return f"appended: offsets={base_offset}..{self.end - 1}"

    def _header(self, command: Command) -> BatchHeader:
        record_count = command.number_or("records", 1)
        return BatchHeader(
            base_offset=0,
            batch_length=49,
            leader_epoch=0,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=record_count - 1,
            base_timestamp_ms=self.now_ms,
            max_timestamp_ms=self.now_ms,
            producer_id=command.number("producer"),
            producer_epoch=command.number_or("epoch", 0),
            base_sequence=command.number("sequence"),
            record_count=record_count,
        )

    def _fresh(self) -> ProducerStates:
        return ProducerStates(producer_id_expiration_ms=self.expiration_ms, producers_max=100)
