"""Errors that a client met and did not tell: librdkafka tries again by itself, and its log says so.

... t [6]: MessageSet with 2 message(s) ... encountered error: Broker: Not enough in-sync
replicas (actions Retry,MsgNotPersisted)
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Final

from confluent_kafka import KafkaError

from tidelog.bench.sender import kafka_name

_MET: Final = re.compile(r"MessageSet with \d+ message\(s\).* encountered error: (.+?) \(actions ")
# Below: librdkafka's own. Above: more than Kafka has.
_CODES: Final = range(-200, 200)


def errors_met(lines: Iterable[str]) -> Counter[str]:
    """How many batches met each error, by Kafka's name of it."""
    found = (_MET.search(line) for line in lines)
    return Counter(_names().get(each[1], each[1]) for each in found if each is not None)


@cache
def _names() -> dict[str, str]:
    """The name of each error by how librdkafka words it."""
    errors = [KafkaError(code) for code in _CODES]
    return {error.str(): kafka_name(error) for error in errors}
