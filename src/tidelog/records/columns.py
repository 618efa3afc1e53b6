"""Records as columns: what a reader of whole topics wants, without an object for each record.

Buffers are laid out as Apache Arrow has them, so that whoever has Arrow wraps them without a copy:

    numbers        one after the other, in the machine's order
    bytes, text    where each ends (int32, beginning with a 0) │ a bit each, if it is there │ all
    list           where each ends among the elements of all │ a bit each │ the elements

Nothing here knows Arrow: brokers have this layer too, and do without it.

Where `_ids.pyx` was compiled, that does the work; `PythonColumnBuilder` does the same, slower.
Bytes come from outside: whatever they hold, the outcome is columns or CorruptBatch.
"""

from array import array
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tidelog.base.ports import BytesLike
from tidelog.records.batch import BatchHeader
from tidelog.records.compiled import compiled
from tidelog.records.record import decode_payload

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
"""Which as microseconds still has 64 bits."""

_INT32 = "i"
_INT64 = "q"
assert array(_INT32).itemsize == 4
assert array(_INT64).itemsize == 8


class VariableColumn(NamedTuple):
    """A column of bytes or text. `validity` None: nothing is null."""

    ends: BytesLike
    validity: BytesLike | None
    data: BytesLike
    null_count: int


class HeaderColumn(NamedTuple):
    """A list of (key, value) for each record; null where a record has no headers."""

    ends: BytesLike
    validity: BytesLike | None
    null_count: int
    keys: VariableColumn
    values: VariableColumn


class RecordColumns(NamedTuple):
    """Some records, in the order in which they were added. Timestamps are in microseconds."""

    row_count: int
    offsets: BytesLike
    timestamps_us: BytesLike
    timestamp_types: BytesLike
    keys: VariableColumn
    values: VariableColumn
    headers: HeaderColumn | None


class ColumnBuilder(Protocol):
    """Gathers records until they are taken."""

    @property
    def row_count(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Of keys, values and headers."""
        ...

    def add(
        self, header: BatchHeader, payload: BytesLike, *, start_offset: int, end_offset: int
    ) -> None:
        """Add those of `[start_offset, end_offset)` of a batch's uncompressed payload.

        Raises CorruptBatch; whether some were added then is not said.
        """
        ...

    def take(self) -> RecordColumns:
        """What was gathered; begins anew."""
        ...


def new_column_builder(*, has_headers: bool) -> ColumnBuilder:
    """An empty one, compiled if there is a compiled one."""
    if compiled is None:
        return PythonColumnBuilder(has_headers=has_headers)
    return CompiledColumnBuilder(has_headers=has_headers)


class CompiledColumnBuilder:
    """The builder of `_ids_columns.pxi`."""

    def __init__(self, *, has_headers: bool) -> None:
        assert compiled is not None
        self._builder = compiled.ColumnBuilder(has_headers)

    @property
    def row_count(self) -> int:
        count: int = self._builder.row_count
        return count

    @property
    def size_bytes(self) -> int:
        size_bytes: int = self._builder.size_bytes
        return size_bytes

    def add(
        self, header: BatchHeader, payload: BytesLike, *, start_offset: int, end_offset: int
    ) -> None:
        self._builder.add(
            payload,
            header.record_count,
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms,
            header.is_log_append_time,
            start_offset,
            end_offset,
        )

    def take(self) -> RecordColumns:
        row_count, offsets, timestamps, types, keys, values, headers = self._builder.take()
        return RecordColumns(
            row_count,
            offsets,
            timestamps,
            types,
            VariableColumn(*keys),
            VariableColumn(*values),
            None if headers is None else _header_column(*headers),
        )


def _header_column(
    ends: BytesLike,
    validity: BytesLike | None,
    null_count: int,
    keys: tuple[BytesLike, BytesLike | None, BytesLike, int],
    values: tuple[BytesLike, BytesLike | None, BytesLike, int],
) -> HeaderColumn:
    return HeaderColumn(ends, validity, null_count, VariableColumn(*keys), VariableColumn(*values))


class PythonColumnBuilder:
    """For machines without a compiler, and to compare with."""

    def __init__(self, *, has_headers: bool) -> None:
        self._has_headers = has_headers
        self._start()

    def _start(self) -> None:
        self._offsets = array(_INT64)
        self._timestamps_us = array(_INT64)
        self._timestamp_types = array(_INT32)
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[tuple[tuple[bytes, bytes | None], ...]] = []
        self.size_bytes = 0

    @property
    def row_count(self) -> int:
        return len(self._offsets)

    def add(
        self, header: BatchHeader, payload: BytesLike, *, start_offset: int, end_offset: int
    ) -> None:
        timestamp_type = int(header.timestamp_type)
        for record in decode_payload(header, payload):
            offset = _wrapped(record.offset)
            if not start_offset <= offset < end_offset:
                continue
            self._offsets.append(offset)
            self._timestamps_us.append(_microseconds(record.timestamp_ms))
            self._timestamp_types.append(timestamp_type)
            self._keys.append(record.key)
            self._values.append(record.value)
            self.size_bytes += len(record.key or b"") + len(record.value or b"")
            if self._has_headers:
                headers = tuple(
                    (name.encode("utf-8", "surrogateescape"), value)
                    for name, value in record.headers
                )
                self._headers.append(headers)
                self.size_bytes += sum(len(name) + len(value or b"") for name, value in headers)

    def take(self) -> RecordColumns:
        taken = RecordColumns(
            self.row_count,
            self._offsets.tobytes(),
            self._timestamps_us.tobytes(),
            self._timestamp_types.tobytes(),
            _variable(self._keys),
            _variable(self._values),
            self._taken_headers() if self._has_headers else None,
        )
        self._start()
        return taken

    def _taken_headers(self) -> HeaderColumn:
        ends = array(_INT32, [0])
        for headers in self._headers:
            ends.append(ends[-1] + len(headers))
        elements = [one for headers in self._headers for one in headers]
        null_count = sum(not headers for headers in self._headers)
        return HeaderColumn(
            ends.tobytes(),
            _bits(bool(headers) for headers in self._headers) if null_count else None,
            null_count,
            _variable([name for name, _ in elements]),
            _variable([value for _, value in elements]),
        )


def _variable(column: list[bytes | None]) -> VariableColumn:
    ends = array(_INT32, [0])
    for one in column:
        ends.append(ends[-1] + len(one or b""))
    null_count = column.count(None)
    validity = _bits(one is not None for one in column) if null_count else None
    return VariableColumn(ends.tobytes(), validity, b"".join(filter(None, column)), null_count)


def _bits(flags: Iterable[bool]) -> bytes:
    """A bit each, the first of a byte being the lowest."""
    number = 0
    count = 0
    for flag in flags:
        number |= flag << count
        count += 1
    return number.to_bytes((count + 7) // 8, "little")


def _wrapped(number: int) -> int:
    """As a sum of 64 bits is on a machine."""
    return (number + 2**63) % 2**64 - 2**63


def _microseconds(timestamp_ms: int) -> int:
    """Of a time that nobody means, the last or first that there is."""
    return max(-TIMESTAMP_MS_MAX, min(TIMESTAMP_MS_MAX, _wrapped(timestamp_ms))) * 1000
