"""The ledger: what producers were told, in a file that `tidelog pipeline verify` judges by (X5).

A line of JSON for each thing that happens to a record. `docs/verify.md` has it for those who write
one in another language.

    {"topic":"orders","id":"c0de-7","crc32":4157704578,"producer":"c0de","number":7,"time":1794870068148}
    {"topic":"orders","id":"c0de-7","partition":3,"offset":1207,"time":1794870068151}
    {"topic":"orders","id":"c0de-8","error":"_MSG_TIMED_OUT","time":1794870098151}

    L1  That a record is sent is in the file before the client has the record. So whoever is killed
        leaves nothing in a log that the ledger has not heard of. Records that are at hand together
        are written together, and all of them before the client has the first.
    L2  Acknowledgements and failures are written with the next record that is sent, or by `flush`.
        One that is lost with its process makes a record one that may be in the log or not.
    L3  A write is of whole lines. Of one that a kill, or a full disk, has cut, the next writer ends
        the line; readers pass over what is no line.

In the file means handed to the operating system, which survives the process and not the machine.
"""

import base64
import os
import time
import zlib
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Final, NewType

from tidelog.base.errors import TidelogError
from tidelog.client.outgoing_record import Headers

SUFFIX: Final = ".jsonl"
PENDING_BYTES_MAX: Final = 64 * 1024
"""Of acknowledgements that are not written yet."""

LedgerEntry = NewType("LedgerEntry", bytes)
"""A record in a ledger: how all lines about it begin."""


class LedgerError(TidelogError):
    """A ledger cannot be written. Nothing is sent that is not in it."""


def record_checksum(*, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """CRC-32 (zlib's, of every language and of Spark) of everything that a producer puts in.

    Of key, value, and name and value of each header, in order; each with its length in front, as in
    `5:hello,`, so that nothing can move from one to the next. Null is `-1:,`.
    """
    # Without a function for what is repeated: it would be called four times for each record.
    parts = [
        b"-1:," if key is None else b"%d:%b," % (len(key), key),
        b"-1:," if value is None else b"%d:%b," % (len(value), value),
    ]
    for text, data in headers:
        name = text.encode()
        parts.append(b"%d:%b," % (len(name), name))
        parts.append(b"-1:," if data is None else b"%d:%b," % (len(data), data))
    return zlib.crc32(b"".join(parts))


class LedgerWriter:
    """Appends to one file, for one producer. Not for several threads at once."""

    def __init__(self, path: Path, *, producer: str) -> None:
        """`producer` is a name that no other writer has; records are in order within it."""
        self.path = path
        self._producer = encode_basestring_ascii(producer).encode()
        self._number = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._topics: dict[str, bytes] = {}
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise LedgerError(f"the ledger {path} cannot be opened: {error.strerror}") from error
        self._end_line()

    def sent(self, topic: str, record_id: bytes, checksum: int) -> LedgerEntry:
        """The record is about to be sent: L1."""
        (entry,) = self.sent_together(topic, [(record_id, checksum)])
        return entry

    def sent_together(
        self, topic: str, records: Iterable[tuple[bytes, int]]
    ) -> Sequence[LedgerEntry]:
        """The same of several, id and checksum of each, in one write."""
        start = self._topic(topic)
        now_ms = _now_ms()
        entries = []
        for record_id, checksum in records:
            entry = LedgerEntry(start + _id_field(record_id))
            entries.append(entry)
            self._pending.append(
                b'%b,"crc32":%d,"producer":%b,"number":%d,"time":%d}\n'
                % (entry, checksum, self._producer, self._number, now_ms)
            )
            self._number += 1
        self.flush()
        return entries

    def acknowledged(self, entry: LedgerEntry, *, partition: int, offset: int) -> None:
        place = b',"partition":%d,"offset":%d,"time":%d}\n' % (partition, offset, _now_ms())
        self._later(entry + place)

    def failed(self, entry: LedgerEntry, error: str) -> None:
        """The producer was told so. The record may be in the log all the same."""
        shown = encode_basestring_ascii(error).encode()
        self._later(b'%b,"error":%b,"time":%d}\n' % (entry, shown, _now_ms()))

    def flush(self) -> None:
        """Write what is not written yet."""
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._write(data)

    def close(self) -> None:
        self.flush()
        os.close(self._descriptor)

    def _later(self, line: bytes) -> None:
        self._pending.append(line)
        self._pending_bytes += len(line)
        if self._pending_bytes > PENDING_BYTES_MAX:
            self.flush()

    def _topic(self, topic: str) -> bytes:
        if topic not in self._topics:
            self._topics[topic] = b'{"topic":%b,' % encode_basestring_ascii(topic).encode()
        return self._topics[topic]

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise LedgerError(
                f"the ledger {self.path} cannot be written: {error.strerror}"
            ) from error

    def _end_line(self) -> None:
        """End what somebody before has left half-written: L3."""
        size_bytes = os.fstat(self._descriptor).st_size
        if size_bytes and os.pread(self._descriptor, 1, size_bytes - 1) != b"\n":
            self._write(b"\n")


def _id_field(record_id: bytes) -> bytes:
    try:
        return b'"id":' + encode_basestring_ascii(record_id.decode()).encode()
    except UnicodeDecodeError:
        return b'"id_base64":"%b"' % base64.b64encode(record_id)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
