"""Reads orders, writes invoices, and commits both together: an order is invoiced once."""

import json
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, Producer

PRICES: Final = {"tea": 3, "coffee": 4}
_WITHIN_S: Final = 30.0


class Pricing:
    """One worker. `instance` is its name, which it keeps when it is started again."""

    def __init__(self, bootstrap: str, *, orders: str, invoices: str, instance: str) -> None:
        self._invoices = invoices
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"pricing-{orders}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": instance})
        self._producer.init_transactions(_WITHIN_S)
        self._consumer.subscribe([orders])

    def handle_one(self, within_s: float) -> bool:
        """Invoice the next order; False if none came in time."""
        message = self._consumer.poll(within_s)
        if message is None or message.error():
            return False
        self._producer.begin_transaction()
        self._producer.produce(self._invoices, invoice(message.value() or b""), message.key())
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._consumer.assignment()),
            self._consumer.consumer_group_metadata(),
            _WITHIN_S,
        )
        self._producer.commit_transaction(_WITHIN_S)
        return True

    def close(self) -> None:
        self._consumer.close()


def invoice(order: bytes) -> bytes:
    """What an order costs, as JSON."""
    wanted: Mapping[str, int] = json.loads(order)
    total = sum(PRICES[item] * count for item, count in wanted.items())
    return json.dumps({"total": total}).encode()
