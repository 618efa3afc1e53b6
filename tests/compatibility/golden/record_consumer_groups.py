"""Have a running Apache Kafka write down groups of the consumer protocol, and keep what it wrote.

    python -m tests.compatibility.golden.record_consumer_groups PORT VERSION

The broker has a single partition of `__consumer_offsets`, and short sessions and heartbeats:

    group.consumer.min.session.timeout.ms=5000      group.consumer.session.timeout.ms=6000
    group.consumer.min.heartbeat.interval.ms=500    group.consumer.heartbeat.interval.ms=500

What it writes of these groups is kept next to this file, keys and values in base64.
"""

import base64
import json
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer

from tests.support.clients import create_topic, read_partition
from tidelog.wire.consumer_group_records import CONSUMER_GROUP_DECODERS

_FOLDER = Path(__file__).parent


def main(port: int, version: str) -> None:
    bootstrap = f"127.0.0.1:{port}"
    create_topic(bootstrap, "orders", partition_count=4, config={})
    create_topic(bootstrap, "returns", partition_count=2, config={})
    _two_members(bootstrap)
    for group, topics, settings in (
        ("static", ["orders", "returns"], {"group.instance.id": "instance-1"}),
        ("regex", ["^ord.*"], {}),
        ("assignor", ["orders"], {"group.remote.assignor": "range"}),
    ):
        alone = _consumer(bootstrap, group, topics, settings)
        _poll(alone, seconds=5)
        alone.close()
    _upgrade_and_downgrade(bootstrap)
    recorded = [
        [_text(record.key), _text(record.value)]
        for record in read_partition(bootstrap, "__consumer_offsets", 0)
        if record.key and int.from_bytes(record.key[:2], "big") in CONSUMER_GROUP_DECODERS
    ]
    path = _FOLDER / f"kafka-{version}-consumer-group-records.json"
    lines = ",\n".join(f"  {json.dumps(record)}" for record in recorded)
    path.write_text(f"[\n{lines}\n]\n", "utf-8")


def _two_members(bootstrap: str) -> None:
    first = _consumer(bootstrap, "plain", ["orders"], {})
    _poll(first, seconds=3)
    second = _consumer(bootstrap, "plain", ["orders"], {})
    _poll(first, second, seconds=6)
    second.close()
    _poll(first, seconds=2)
    first.close()


def _upgrade_and_downgrade(bootstrap: str) -> None:
    classic = {"group.protocol": "classic", "session.timeout.ms": "10000"}
    old = _consumer(bootstrap, "mixed", ["orders"], classic)
    _poll(old, seconds=7)
    new = _consumer(bootstrap, "mixed", ["orders"], {})
    _poll(old, new, seconds=8)
    new.close()
    _poll(old, seconds=4)
    old.close()


def _consumer(bootstrap: str, group: str, topics: list[str], settings: dict[str, str]) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "client.id": "golden",
            **settings,
        }
    )
    consumer.subscribe(topics)
    return consumer


def _poll(*consumers: Consumer, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for consumer in consumers:
            consumer.poll(0.05)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
