"""Which system the compatibility tests are about.

TIDELOG_SUBJECT=tidelog     one broker
TIDELOG_SUBJECT=tidelog3    three brokers, three replicas of everything
TIDELOG_SUBJECT=kafka       one broker of Apache Kafka: to see that the tests are right about it
"""

import os

SUBJECT = os.environ.get("TIDELOG_SUBJECT", "tidelog")
SUBJECTS = ("tidelog", "tidelog3", "kafka")
assert SUBJECT in SUBJECTS, f"TIDELOG_SUBJECT={SUBJECT}: expected one of {SUBJECTS}"

BROKER_COUNT = 3 if SUBJECT == "tidelog3" else 1
ASKED = 1
"""The broker that is asked by tests that speak to one of them."""


def replicas(partition_count: int, *, led_by: int | None) -> list[list[int]]:
    """Replicas of a topic's partitions: on every broker, led by this one or by each in turn."""
    leaders = [led_by or 1 + number % BROKER_COUNT for number in range(partition_count)]
    return [
        [1 + (leader - 1 + step) % BROKER_COUNT for step in range(BROKER_COUNT)]
        for leader in leaders
    ]
