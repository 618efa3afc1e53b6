"""Have a running Apache Kafka write down groups and offsets, and keep the records it wrote.

    python -m tests.compatibility.golden.record_groups PORT VERSION

The broker is a stock one with a single partition of `__consumer_offsets`. Whatever that holds is
written next to this file, keys and values in base64.
"""

import base64
import json
import sys
from pathlib import Path

from tests.support.clients import create_topic, read_partition
from tests.support.kio_codec import Values, milliseconds
from tests.support.raw_client import RawClient
from tests.support.server_process import wait_until
from tidelog.wire.api import ApiKey

_FOLDER = Path(__file__).parent
_TOPIC = "golden-offsets"
_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x0egolden-offsets\xff\xff\xff\xff"


def main(port: int, version: str) -> None:
    bootstrap = f"127.0.0.1:{port}"
    create_topic(bootstrap, _TOPIC, partition_count=2, config={})
    with RawClient(port) as client:
        topic_id = client.known_topic(_TOPIC).id
        wait_until(lambda: _is_coordinator(client), within_s=60, what="a coordinator")
        _static_member(client)
        _commits(client, topic_id)
        client.request(ApiKey.LEAVE_GROUP, 5, _leaving())
        client.request(ApiKey.OFFSET_DELETE, 0, _deleted_offset())
        client.request(ApiKey.DELETE_GROUPS, 2, {"groups_names": ("simple",)})
    records = read_partition(bootstrap, "__consumer_offsets", 0)
    _write(f"kafka-{version}-group-records.json", [[_text(r.key), _text(r.value)] for r in records])


def _is_coordinator(client: RawClient) -> bool:
    answer = client.request(
        ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": ("golden",)}
    )
    if answer.coordinators[0].error_code:
        return False
    listed = client.request(ApiKey.LIST_GROUPS, 5, {"states_filter": (), "types_filter": ()})
    return not listed.error_code


def _static_member(client: RawClient) -> None:
    joined = client.request(ApiKey.JOIN_GROUP, 9, _joining())
    assert not joined.error_code, joined
    synced = client.request(
        ApiKey.SYNC_GROUP,
        5,
        {
            "group_id": "golden",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": "instance",
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": ({"member_id": joined.member_id, "assignment": b"assigned"},),
        },
    )
    assert not synced.error_code, synced


def _joining() -> Values:
    return {
        "group_id": "golden",
        "session_timeout": milliseconds(30_000),
        "rebalance_timeout": milliseconds(60_000),
        "member_id": "",
        "group_instance_id": "instance",
        "protocol_type": "consumer",
        "protocols": ({"name": "range", "metadata": _SUBSCRIPTION},),
        "reason": None,
    }


def _commits(client: RawClient, topic_id: object) -> None:
    """Of anybody: as they are today, with a time of expiry, and with the id of the topic."""
    for version, partition in ((9, 0), (2, 1), (10, 1)):
        answer = client.request(
            ApiKey.OFFSET_COMMIT,
            version,
            {
                "group_id": "simple" if version < 10 else "by-id",
                "generation_id_or_member_epoch": -1,
                "generation_id": -1,
                "member_id": "",
                "group_instance_id": None,
                "retention_time": milliseconds(3_600_000),
                "topics": (
                    {
                        "name": _TOPIC,
                        "topic_id": topic_id,
                        "partitions": (
                            {
                                "partition_index": partition,
                                "committed_offset": 42 + version,
                                "committed_leader_epoch": 5,
                                "committed_metadata": f"version {version} \u00e9",
                            },
                        ),
                    },
                ),
            },
        )
        assert not answer.topics[0].partitions[0].error_code, answer


def _leaving() -> Values:
    member = {"member_id": "", "group_instance_id": "instance", "reason": None}
    return {"group_id": "golden", "members": (member,)}


def _deleted_offset() -> Values:
    topic = {"name": _TOPIC, "partitions": ({"partition_index": 0},)}
    return {"group_id": "simple", "topics": (topic,)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _write(name: str, content: object) -> None:
    (_FOLDER / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
