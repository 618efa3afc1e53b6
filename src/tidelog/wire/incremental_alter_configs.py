"""IncrementalAlterConfigs: as much of it as it takes to see for whom it is.

The message itself is kio's, see messages.py.
"""

from tidelog.wire.api import ApiKey, RequestHeader, is_flexible
from tidelog.wire.primitives import Reader


def first_resource_type(view: memoryview, header: RequestHeader) -> int | None:
    """The type of the first resource that is named; None if none is. Raises WireError."""
    flexible = is_flexible(ApiKey.INCREMENTAL_ALTER_CONFIGS, header.api_version)
    reader = Reader(view, header.body_position, flexible=flexible)
    return reader.int8() if reader.array_count() else None
