"""At most once: commit, then process.

A consumer that dies between the two never sees that record again: it may be lost, and is never
repeated. For what is worthless twice and cheap to lose, such as a metric of every second.

    python examples/delivery/at_most_once.py TOPIC OUTPUT [--bootstrap HOST:PORT]

Values are appended to the file OUTPUT. Ends when nothing has come for `--idle-s` seconds.
"""

import argparse
import os
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message

LOCAL = "127.0.0.1:9092"
REACHABLE_WITHIN_S = 10


def process(message: Message, output: Path) -> None:
    """Whatever an application does with a record."""
    with output.open("ab") as opened:
        opened.write((message.value() or b"") + b"\n")


def commit(consumer: Consumer, message: Message) -> None:
    """Wait until the group's coordinator has the offset of the record after this one."""
    consumer.commit(message=message, asynchronous=False)


def main() -> None:
    """Read a topic to its end."""
    arguments = parse_arguments()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": arguments.group,
            # A static member: whoever replaces a dead one gets its partitions at once.
            "group.instance.id": f"{arguments.group}-1",
            "auto.offset.reset": "earliest",
            # The consumer's own commits come whenever it likes, before or after.
            "enable.auto.commit": False,
        }
    )
    # Raises if nobody answers; a poll would find nothing, as at the end of the topic.
    consumer.list_topics(arguments.topic, timeout=REACHABLE_WITHIN_S)
    consumer.subscribe([arguments.topic])
    while (message := consumer.poll(arguments.idle_s)) is not None:
        if (error := message.error()) is not None:
            raise KafkaException(error)
        commit(consumer, message)
        process(message, arguments.output)
    consumer.close()


def parse_arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("topic")
    parser.add_argument("output", type=Path)
    parser.add_argument("--bootstrap", default=os.environ.get("TIDELOG_BOOTSTRAP", LOCAL))
    parser.add_argument("--group", default="at-most-once")
    parser.add_argument("--idle-s", type=float, default=10.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
