"""ApiVersions (18): which versions of which API this broker speaks (KIP-511).

A version we do not know is answered in version 0 with UNSUPPORTED_VERSION, so that a client of the
future can find out what to speak. What is advertised has a handler: `broker/dispatch.py` asserts
it.
"""

import re
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ErrorCode
from tidelog.broker.connection import Answer, Connection
from tidelog.wire.api import ADVERTISED, SUPPORTED, ApiKey, RequestHeader
from tidelog.wire.api_versions import (
    ApiVersionsResponse,
    Feature,
    decode_api_versions,
    encode_api_versions_response,
    encode_unsupported_version,
)

_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE = 3

SUPPORTED_FEATURES: Final = (Feature("group.version", 0, 1), Feature("transaction.version", 0, 2))
FINALIZED_FEATURES: Final = (Feature("group.version", 1, 1), Feature("transaction.version", 2, 2))
"""What every broker of a cluster does: groups of the consumer protocol (KIP-848), and clients end
transactions with a new epoch (KIP-890)."""
FEATURES_EPOCH: Final = 0
"""They do not change while a cluster runs."""


@dataclass(frozen=True, slots=True)
class ApiVersionsHandler:
    """Answers from what `wire/api.py` says; depends on nothing."""

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        own = SUPPORTED[ApiKey.API_VERSIONS]
        if not own.lowest <= header.api_version <= own.highest:
            return encode_unsupported_version(header.correlation_id, own)
        request = decode_api_versions(frame, header.body_position, header.api_version)
        code = ErrorCode.NONE
        if header.api_version >= _FIRST_WITH_SOFTWARE:
            software = (request.client_software_name or "", request.client_software_version or "")
            if all(_LEGAL_SOFTWARE.fullmatch(part) for part in software):
                connection.client_software = " ".join(software)
            else:
                code = ErrorCode.INVALID_REQUEST
        response = ApiVersionsResponse(
            error_code=code,
            api_versions={} if code else {int(key): ADVERTISED[key] for key in ADVERTISED},
            throttle_ms=0,
            supported_features=SUPPORTED_FEATURES,
            finalized_features_epoch=FEATURES_EPOCH,
            finalized_features=FINALIZED_FEATURES,
        )
        return encode_api_versions_response(header.api_version, header.correlation_id, response)
