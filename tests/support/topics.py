"""Topics for tests of clients: make one of an unused name, look at what a broker stored in it."""

import itertools
from collections.abc import Mapping
from pathlib import Path

from tests.support.clients import create_topic
from tidelog.records.batch import BatchHeader, Codec, iter_headers
from tidelog.records.record import Record, encode_plain_batch

_numbers = itertools.count()


def unused_name() -> str:
    """A name that no other topic of this process has."""
    return f"topic-{next(_numbers)}"


def new_topic(
    bootstrap: str,
    *,
    partition_count: int = 1,
    config: Mapping[str, str] | None = None,
    led_by: int | None = None,
) -> str:
    """`led_by`: who leads all of it; each broker in turn if it is None."""
    topic = unused_name()
    create_topic(
        bootstrap, topic, partition_count=partition_count, config=config or {}, led_by=led_by
    )
    return topic


def stored_batches(data_folder: Path, topic: str) -> list[BatchHeader]:
    """The headers of all batches in the log files of the topic's first partition."""
    files = sorted((data_folder / f"{topic}-0").glob("*.log"))
    return [header for file in files for _position, header in iter_headers(file.read_bytes())]


def value_filling(batch_size_bytes: int) -> bytes:
    """A value whose record, alone in a batch and without a key, makes it exactly this large."""
    nearly = bytes(batch_size_bytes - 200)
    batch = encode_plain_batch([Record(0, 1, None, nearly, ())], Codec.NONE)
    value = bytes(len(nearly) + batch_size_bytes - len(batch))
    batch = encode_plain_batch([Record(0, 1, None, value, ())], Codec.NONE)
    assert len(batch) == batch_size_bytes, "a length field grew by a byte on the way"
    return value
