"""What a real Apache Kafka answered or wrote, recorded in tests/compatibility/golden."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GOLDEN = Path(__file__).parent.parent / "compatibility" / "golden"


def kafka_api_versions() -> dict[int, tuple[int, int]]:
    """Lowest and highest version that Kafka 4.3.0 advertises, by api key."""
    recorded = json.loads((_GOLDEN / "kafka-4.3.0-api-versions.json").read_text("utf-8"))
    return {int(key): (lowest, highest) for key, (lowest, highest) in recorded.items()}


def kafka_settings() -> dict[str, dict[str, dict[str, Any]]]:
    """Settings of Kafka 4.3.0 by kind and name, as record_settings.py describes them."""
    recorded: dict[str, dict[str, dict[str, Any]]] = json.loads(
        (_GOLDEN / "kafka-4.3.0-settings.json").read_text("utf-8")
    )
    return recorded


def kafka_produce_codes() -> dict[str, int]:
    """The error code with which Kafka 4.3.0 answers the batches of tests/support/batches.py."""
    recorded: dict[str, int] = json.loads(
        (_GOLDEN / "kafka-4.3.0-produce-codes.json").read_text("utf-8")
    )
    return recorded


def kafka_batches() -> dict[str, bytes]:
    """The same 40 records as Kafka 4.3.0's console producer and broker stored them, by codec."""
    recorded = json.loads((_GOLDEN / "kafka-4.3.0-batches.json").read_text("utf-8"))
    return {codec: base64.b64decode(batch) for codec, batch in recorded.items()}


def kafka_group_records() -> list[tuple[bytes, bytes | None]]:
    """Keys and values that Kafka 4.3.0 wrote for what record_groups.py did."""
    recorded = json.loads((_GOLDEN / "kafka-4.3.0-group-records.json").read_text("utf-8"))
    return [
        (base64.b64decode(key), None if value is None else base64.b64decode(value))
        for key, value in recorded
    ]


def kafka_consumer_group_records() -> list[tuple[bytes, bytes | None]]:
    """Keys and values that Kafka 4.3.0 wrote for what record_consumer_groups.py did."""
    recorded = json.loads((_GOLDEN / "kafka-4.3.0-consumer-group-records.json").read_text("utf-8"))
    return [
        (base64.b64decode(key), None if value is None else base64.b64decode(value))
        for key, value in recorded
    ]


@dataclass(frozen=True, slots=True)
class RecordedTransactions:
    """How Kafka 4.3.0 answered the steps of `transaction_steps.py`, and what it wrote."""

    answers: list[list[object] | None]
    names: dict[int, str]
    """Of producer ids, in the answers."""
    records: list[tuple[bytes, bytes | None]]


def kafka_transactions() -> RecordedTransactions:
    recorded = json.loads((_GOLDEN / "kafka-4.3.0-transactions.json").read_text("utf-8"))
    return RecordedTransactions(
        answers=recorded["answers"],
        names={int(producer_id): name for producer_id, name in recorded["ids"].items()},
        records=[
            (base64.b64decode(key), None if value is None else base64.b64decode(value))
            for key, value in recorded["records"]
        ],
    )
