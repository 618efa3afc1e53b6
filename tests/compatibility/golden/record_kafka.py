"""Ask a running Apache Kafka what our unit tests compare with, and write it down.

    python -m tests.compatibility.golden.record_kafka PORT VERSION

The broker is a stock one with `auto.create.topics.enable`. Two files are written next to this one:
which versions it advertises, and which error code each damaged batch of tests/support/batches.py
gets. Run again when a new Kafka is to be followed, and read the difference.
"""

import json
import socket
import struct
import sys
import time
from pathlib import Path

from tests.support.batches import accepted_batches, refused_batches
from tidelog.wire.api import ApiKey
from tidelog.wire.api_versions import (
    ApiVersionsRequest,
    decode_api_versions_response,
    encode_api_versions_request,
)
from tidelog.wire.primitives import compact_string, uvarint

_FOLDER = Path(__file__).parent
_TOPIC = "refusals"
_PRODUCE_VERSION = 9
_API_VERSIONS_VERSION = 4
_PARTITION_RESULT = struct.Struct(">ih")


def main(port: int, version: str) -> None:
    _write(f"kafka-{version}-api-versions.json", _api_versions(port))
    _create_topic(port)
    now_ms = int(time.time() * 1000)
    batches = refused_batches(now_ms) | accepted_batches(now_ms)
    _write(
        f"kafka-{version}-produce-codes.json",
        {name: _produce(port, batch) for name, batch in batches.items()},
    )


def _api_versions(port: int) -> dict[str, list[int]]:
    body = encode_api_versions_request(_API_VERSIONS_VERSION, ApiVersionsRequest("tidelog", "0"))
    answer = _ask(port, ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, body)
    assert answer is not None
    response = decode_api_versions_response(memoryview(answer), 4, _API_VERSIONS_VERSION)
    return {str(key): list(versions) for key, versions in response.api_versions.items()}


def _create_topic(port: int) -> None:
    body = b"\x02" + compact_string(_TOPIC) + b"\x00" + b"\x01\x00\x00\x00"
    for _ in range(50):
        answer = _ask(port, ApiKey.METADATA, 9, body)
        if answer is not None and _produce(port, accepted_batches(0)["plain"]) == 0:
            return
        time.sleep(0.2)


def _produce(port: int, batch: bytes) -> int | None:
    """The error code of the only partition; None if the connection was closed."""
    body = b"".join(
        (
            b"\x00" + struct.pack(">hi", 1, 5_000) + b"\x02",
            compact_string(_TOPIC),
            b"\x02" + struct.pack(">i", 0) + uvarint(len(batch) + 1) + batch + b"\x00\x00\x00",
        )
    )
    answer = _ask(port, ApiKey.PRODUCE, _PRODUCE_VERSION, body)
    if answer is None:
        return None
    _partition, code = _PARTITION_RESULT.unpack_from(answer, 5 + 1 + 1 + len(_TOPIC) + 1)
    return int(code)


def _ask(port: int, api_key: ApiKey, version: int, body: bytes) -> bytes | None:
    request = struct.pack(">hhihb", api_key, version, 1, -1, 0) + body
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        length = connection.recv(4, socket.MSG_WAITALL)
        if len(length) < 4:
            return None
        return connection.recv(struct.unpack(">i", length)[0], socket.MSG_WAITALL)


def _write(name: str, content: object) -> None:
    (_FOLDER / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
