"""Records become columns as Arrow lays them out; with and without a compiler the same (X1)."""

from collections.abc import Callable
from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import BatchHeader, Codec, read_header
from tidelog.records.columns import (
    TIMESTAMP_MS_MAX,
    ColumnBuilder,
    CompiledColumnBuilder,
    PythonColumnBuilder,
    RecordColumns,
    VariableColumn,
)
from tidelog.records.compiled import compiled
from tidelog.records.record import Record, decode_payload, encode_plain_batch, uncompressed_payload

NewBuilder = Callable[[bool], ColumnBuilder]


def in_python(has_headers: bool) -> ColumnBuilder:
    return PythonColumnBuilder(has_headers=has_headers)


def as_compiled(has_headers: bool) -> ColumnBuilder:
    return CompiledColumnBuilder(has_headers=has_headers)


BUILDERS = [in_python] if compiled is None else [in_python, as_compiled]
both = pytest.mark.parametrize("new_builder", BUILDERS)

BEGIN, END = 0, 2**63 - 1

texts = st.text(st.characters(codec="utf-8"), max_size=5)
values = st.none() | st.binary(max_size=20)
records = st.builds(
    Record,
    st.just(0),
    st.integers(-(2**40), 2**40),
    values,
    values,
    st.lists(st.tuples(texts, values), max_size=3).map(tuple),
)


def numbered(found: list[Record], first: int = 0) -> list[Record]:
    return [record._replace(offset=first + number) for number, record in enumerate(found)]


def batch_of(*found: Record) -> tuple[BatchHeader, bytes]:
    batch = bytes(encode_plain_batch(found, Codec.NONE))
    header = read_header(batch, 0)
    return header, bytes(uncompressed_payload(header, batch))


def plain(columns: object) -> object:
    """The same with bytes for whatever has a buffer."""
    if isinstance(columns, tuple):
        return tuple(plain(one) for one in columns)
    return columns if isinstance(columns, int | None) else bytes(memoryview(columns))  # type: ignore[arg-type]


def numbers(code: str, data: object, count: int) -> list[int]:
    return list(unpack(f"={count}{code}", bytes(memoryview(data))))  # type: ignore[arg-type]


def is_there(column: VariableColumn, row: int) -> bool:
    return column.validity is None or bool(bytes(column.validity)[row // 8] >> row % 8 & 1)


def cells(column: VariableColumn, count: int) -> list[bytes | None]:
    ends = numbers("i", column.ends, count + 1)
    data = bytes(column.data)
    found = [
        data[ends[row] : ends[row + 1]] if is_there(column, row) else None for row in range(count)
    ]
    assert found.count(None) == column.null_count
    return found


def rows(columns: RecordColumns) -> list[Record]:
    """What a reader of the columns sees."""
    count = columns.row_count
    headers: list[tuple[tuple[str, bytes | None], ...]] = [()] * count
    if columns.headers is not None:
        ends = numbers("i", columns.headers.ends, count + 1)
        keys = cells(columns.headers.keys, ends[-1])
        found = cells(columns.headers.values, ends[-1])
        pairs = [((key or b"").decode(), value) for key, value in zip(keys, found, strict=True)]
        headers = [tuple(pairs[ends[row] : ends[row + 1]]) for row in range(count)]
    return [
        Record(offset, timestamp_us // 1000, key, value, found_headers)
        for offset, timestamp_us, key, value, found_headers in zip(
            numbers("q", columns.offsets, count),
            numbers("q", columns.timestamps_us, count),
            cells(columns.keys, count),
            cells(columns.values, count),
            headers,
            strict=True,
        )
    ]


@both
@given(found=st.lists(st.lists(records, min_size=1, max_size=20), max_size=4))
def test_columns_hold_the_records_that_were_added(
    new_builder: NewBuilder, found: list[list[Record]]
) -> None:
    builder = new_builder(True)
    expected: list[Record] = []
    for batch in found:
        added = numbered(batch, len(expected))
        builder.add(*batch_of(*added), start_offset=BEGIN, end_offset=END)
        expected += added
    assert builder.row_count == len(expected)
    assert rows(builder.take()) == expected
    assert builder.row_count == 0


@both
@given(
    found=st.lists(records, min_size=1, max_size=20),
    start=st.integers(0, 25),
    end=st.integers(0, 25),
)
def test_only_offsets_within_the_range_are_added(
    new_builder: NewBuilder, found: list[Record], start: int, end: int
) -> None:
    builder = new_builder(False)
    added = numbered(found)
    builder.add(*batch_of(*added), start_offset=start, end_offset=end)
    expected = [one._replace(headers=()) for one in added if start <= one.offset < end]
    assert rows(builder.take()) == expected


@both
def test_log_append_time_is_that_of_the_batch(new_builder: NewBuilder) -> None:
    header, payload = batch_of(Record(0, 5, None, None, ()), Record(1, 6, None, None, ()))
    stamped = header._replace(attributes=0x08, max_timestamp_ms=99)
    builder = new_builder(False)
    builder.add(stamped, payload, start_offset=BEGIN, end_offset=END)
    columns = builder.take()
    assert [record.timestamp_ms for record in rows(columns)] == [99, 99]
    assert numbers("i", columns.timestamp_types, 2) == [1, 1]


@both
@pytest.mark.parametrize("sign", [1, -1])
def test_times_that_nobody_means_are_the_last_that_there_are(
    new_builder: NewBuilder, sign: int
) -> None:
    header, payload = batch_of(Record(0, 0, None, None, ()))
    builder = new_builder(False)
    far = header._replace(base_timestamp_ms=sign * 2**62)
    builder.add(far, payload, start_offset=BEGIN, end_offset=END)
    assert [record.timestamp_ms for record in rows(builder.take())] == [sign * TIMESTAMP_MS_MAX]


@both
def test_what_was_taken_stays_when_more_is_added(new_builder: NewBuilder) -> None:
    builder = new_builder(True)
    first = Record(0, 1, b"k", b"v", (("h", b"x"),))
    second = Record(1, 2, b"K", b"V", ())
    builder.add(*batch_of(first), start_offset=BEGIN, end_offset=END)
    taken = builder.take()
    builder.add(*batch_of(second), start_offset=BEGIN, end_offset=END)
    assert rows(taken) == [first]
    assert rows(builder.take()) == [second]


@both
@given(found=st.lists(records, min_size=1, max_size=5), data=st.data())
def test_damaged_records_are_refused_or_read_as_they_are(
    new_builder: NewBuilder, found: list[Record], data: st.DataObject
) -> None:
    header, payload = batch_of(*numbered(found))
    damaged = bytearray(payload)
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    builder = new_builder(True)
    try:
        expected = decode_payload(header, cut)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            builder.add(header, cut, start_offset=-(2**63), end_offset=END)
    else:
        builder.add(header, cut, start_offset=-(2**63), end_offset=END)
        assert builder.row_count == len(expected)


@pytest.mark.skipif(compiled is None, reason="nothing was compiled")
@given(found=st.lists(records, min_size=1, max_size=20), has_headers=st.booleans())
def test_compiled_columns_are_those_of_python(found: list[Record], has_headers: bool) -> None:
    taken = []
    for new_builder in BUILDERS:
        builder = new_builder(has_headers)
        builder.add(*batch_of(*numbered(found)), start_offset=BEGIN, end_offset=END)
        size_bytes = builder.size_bytes
        taken.append((size_bytes, plain(builder.take())))
    assert taken[0] == taken[1]
