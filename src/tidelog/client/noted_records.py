"""Records of one producer and the ledger they are noted in: an id for each, and a line before it is
sent."""

import uuid
from collections.abc import Sequence
from pathlib import Path

from tidelog.base.errors import ConfigError
from tidelog.client.ledger import SUFFIX, LedgerEntry, LedgerWriter, record_checksum
from tidelog.client.record_ids import HeaderId, IdSource, find_id

Header = tuple[str, bytes | None]


class NotedRecords:
    """Gives ids to records that lack one, and writes all of them down."""

    def __init__(self, path: Path, *, topic: str, id_source: IdSource) -> None:
        """`path` is a file, or a folder in which every producer has a file of its own."""
        self._topic = topic
        self._id_source = id_source
        self._producer = uuid.uuid4().hex[:12]
        self._count = 0
        file = path / f"{self._producer}{SUFFIX}" if path.is_dir() else path
        self._ledger = LedgerWriter(file, producer=self._producer)

    def note(
        self, *, key: bytes | None, value: bytes | None, headers: Sequence[Header]
    ) -> tuple[Sequence[Header], LedgerEntry]:
        """The headers to send the record with, and its entry. ConfigError if it has no id."""
        record_id = find_id(self._id_source, key=key, value=value, headers=headers)
        if record_id is None:
            record_id = self._new_id()
            headers = [*headers, (self._header_name(), record_id)]
        self._count += 1
        checksum = record_checksum(key=key, value=value, headers=headers)
        return headers, self._ledger.sent(self._topic, record_id, checksum)

    def acknowledged(self, entry: LedgerEntry, *, partition: int, offset: int) -> None:
        if offset >= 0:  # With acks=0 nobody knows.
            self._ledger.acknowledged(entry, partition=partition, offset=offset)

    def failed(self, entry: LedgerEntry, error: str) -> None:
        self._ledger.failed(entry, error)

    def flush(self) -> None:
        self._ledger.flush()

    def _new_id(self) -> bytes:
        return b"%b-%d" % (self._producer.encode(), self._count)

    def _header_name(self) -> str:
        if isinstance(self._id_source, HeaderId):
            return self._id_source.name
        raise ConfigError(
            f"record {self._count} has no id: --id {self._id_source} finds none in it"
        )
