"""The rows that a topic becomes: their schema, and columns of records as Arrow batches of it (X1).

Names and types are those of Spark's own Kafka source. Every column but the two that are the same
for all rows of a batch is wrapped as it is, without a copy.
"""

import re
from typing import Final

import pyarrow as pa

from tidelog.base.ports import BytesLike
from tidelog.records.columns import HeaderColumn, RecordColumns, VariableColumn

# With a time zone, whatever `spark.sql.timestampType` takes TIMESTAMP alone for.
_COLUMNS_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP_LTZ, timestampType INT"
)
_HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_SCHEMA: Final = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", _HEADERS)])


def ddl(*, has_headers: bool) -> str:
    """The schema in Spark's words."""
    return f"{_COLUMNS_DDL}, {_HEADERS_DDL}" if has_headers else _COLUMNS_DDL


def simple_string(*, has_headers: bool) -> str:
    """As Spark's `simpleString` has it, all in lower case."""
    words = ddl(has_headers=has_headers).lower().replace("timestamp_ltz", "timestamp")
    return f"struct<{re.sub('[: ]+', ':', words.replace(', ', ','))}>"


def schema(*, has_headers: bool) -> pa.Schema:
    """The same in Arrow's."""
    return _SCHEMA_WITH_HEADERS if has_headers else _SCHEMA


def record_batch(columns: RecordColumns, *, topic: str, partition: int) -> pa.RecordBatch:
    """Some records of one partition as rows."""
    count = columns.row_count
    arrays = [
        _variable(pa.binary(), count, columns.keys),
        _variable(pa.binary(), count, columns.values),
        _repeated(pa.scalar(topic, pa.string()), count),
        _repeated(pa.scalar(partition, pa.int32()), count),
        _numbers(pa.int64(), count, columns.offsets),
        _numbers(_TIMESTAMP, count, columns.timestamps_us),
        _numbers(pa.int32(), count, columns.timestamp_types),
    ]
    if columns.headers is not None:
        arrays.append(_headers(count, columns.headers))
    return pa.RecordBatch.from_arrays(
        arrays, schema=schema(has_headers=columns.headers is not None)
    )


def _repeated(value: pa.Scalar, count: int) -> pa.Array:
    return pa.repeat(value, count)


def _numbers(kind: pa.DataType, count: int, data: BytesLike) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _variable(kind: pa.DataType, count: int, column: VariableColumn) -> pa.Array:
    return pa.Array.from_buffers(
        kind,
        count,
        [_bits(column.validity), pa.py_buffer(column.ends), pa.py_buffer(column.data)],
        null_count=column.null_count,
    )


def _headers(count: int, column: HeaderColumn) -> pa.Array:
    header_count = len(memoryview(column.keys.ends).cast("B")) // 4 - 1
    elements = pa.StructArray.from_arrays(
        [
            _variable(pa.string(), header_count, column.keys),
            _variable(pa.binary(), header_count, column.values),
        ],
        fields=list(_HEADER),
    )
    return pa.Array.from_buffers(
        _HEADERS,
        count,
        [_bits(column.validity), pa.py_buffer(column.ends)],
        null_count=column.null_count,
        children=[elements],
    )


def _bits(validity: BytesLike | None) -> pa.Buffer | None:
    return None if validity is None else pa.py_buffer(validity)
