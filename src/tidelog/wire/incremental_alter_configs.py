"""IncrementalAlterConfigs: as much of it as it takes to see for whom it is.

The message itself is kio's, see messages.py.
"""

from tidelog.wire.api import ApiKey, RequestHeader, is_flexible
from tidelog.wire.primitives import Reader


def has_resource_of(view: memoryview, header: RequestHeader, resource_type: int) -> bool:
    """Whether a resource of that type is named. Raises WireError.

    Takes as long as the request is.
    """
    flexible = is_flexible(ApiKey.INCREMENTAL_ALTER_CONFIGS, header.api_version)
    reader = Reader(view, header.body_position, flexible=flexible)
    for _ in range(reader.array_count()):
        if reader.int8() == resource_type:
            return True
        reader.string()
        for _ in range(reader.array_count()):
            reader.string()
            reader.int8()
            reader.nullable_string()
            reader.end_structure()
        reader.end_structure()
    return False
