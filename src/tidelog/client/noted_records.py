"""Records of one producer and the ledger they are noted in: an id for each, and a line before it is
sent."""

import uuid
from collections.abc import Sequence
from pathlib import Path

from tidelog.base.errors import ConfigError
from tidelog.client.ledger import SUFFIX, LedgerEntry, LedgerWriter, record_checksum
from tidelog.client.outgoing_record import Headers, OutgoingRecord
from tidelog.client.record_fields import HeaderField, RecordField, field_finder


class NotedRecords:
    """Gives ids to records that lack one, and writes all of them down."""

    def __init__(self, path: Path, *, topic: str, id_field: RecordField) -> None:
        """`path` is a file, or a folder in which every producer has a file of its own."""
        self._topic = topic
        self._id_field = id_field
        self._find_id = field_finder(id_field)
        self._producer = uuid.uuid4().hex[:12]
        self._count = 0
        file = path / f"{self._producer}{SUFFIX}" if path.is_dir() else path
        self._ledger = LedgerWriter(file, producer=self._producer)

    def note(self, records: Sequence[OutgoingRecord]) -> Sequence[tuple[Headers, LedgerEntry]]:
        """As many of the records as come before one that has no id, in one write.

        The headers to send each with, and its entry. ConfigError if that is the first one.
        """
        all_headers: list[Headers] = []
        prefix = self._producer.encode()
        ids = []
        for record in records:
            headers = record.headers
            record_id = self._find_id(record)
            if record_id is None:
                if not isinstance(self._id_field, HeaderField):
                    break
                record_id = b"%b-%d" % (prefix, self._count)
                headers = [*headers, (self._id_field.name, record_id)]
            self._count += 1
            checksum = record_checksum(key=record.key, value=record.value, headers=headers)
            all_headers.append(headers)
            ids.append((record_id, checksum))
        if records and not ids:
            raise ConfigError(
                f"record {self._count} has no id: --id {self._id_field} finds none in it"
            )
        entries = self._ledger.sent_together(self._topic, ids)
        return list(zip(all_headers, entries, strict=True))

    def acknowledged(self, entry: LedgerEntry, *, partition: int, offset: int) -> None:
        if offset >= 0:  # With acks=0 nobody knows.
            self._ledger.acknowledged(entry, partition=partition, offset=offset)

    def failed(self, entry: LedgerEntry, error: str) -> None:
        self._ledger.failed(entry, error)

    def flush(self) -> None:
        self._ledger.flush()
