"""Checksums and places of a topic's rows, as columns: what `tidelog.client` computes by record.

Everything is made of Spark's own functions, so no row goes through Python.
"""

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from pyspark.sql import Column

OFFSET_BITS: Final = 47
OFFSET_MAX: Final = 2**OFFSET_BITS - 1
"""140 billion thousand records in a partition: a million a second for four years."""
PARTITION_MAX: Final = 2 ** (63 - OFFSET_BITS) - 1


def checksum_column() -> "Column":
    """Of key, value and headers of a row of `format("tidelog")`. Compare `record_checksum`."""
    record = F.concat(_framed(F.col("key")), _framed(F.col("value")))
    headers = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    with_headers = F.aggregate(
        headers,
        record,
        lambda before, header: F.concat(
            before, _framed(header["key"].cast("binary")), _framed(header["value"])
        ),
    )
    return F.crc32(F.when(F.size(headers) == 0, record).otherwise(with_headers))


def _framed(data: "Column") -> "Column":
    length = F.octet_length(data).cast("string").cast("binary")
    framed = F.concat(length, F.lit(b":"), data, F.lit(b","))
    return F.when(data.isNull(), F.lit(b"-1:,")).otherwise(framed)


def place_column(partition: "Column", offset: "Column") -> "Column":
    """Partition and offset as one number, in the order of both. Aggregates of numbers are cheap."""
    place = F.shiftleft(partition.cast("long"), OFFSET_BITS).bitwiseOR(offset)
    is_in_range = reduce(
        lambda one, other: one & other,
        (partition >= 0, partition <= PARTITION_MAX, offset >= 0, offset <= OFFSET_MAX),
    )
    problem = F.concat(
        F.lit("partition "), partition, F.lit(", offset "), offset, F.lit(" is out of range")
    )
    return F.when(is_in_range, place).when(
        partition.isNotNull() & offset.isNotNull(), F.raise_error(problem).cast("long")
    )


def partition_of(place: "Column") -> "Column":
    return F.shiftright(place, OFFSET_BITS).cast("int")


def offset_of(place: "Column") -> "Column":
    return place.bitwiseAND(F.lit(OFFSET_MAX).cast("long"))
