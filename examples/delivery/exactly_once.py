"""Exactly once: what is written and how far was read are one transaction.

Records of one topic become records of another. A consumer that dies leaves a transaction that is
aborted, by its successor or when its time is up: who reads the output with
`isolation.level=read_committed` sees each record once, whatever died when.

    python examples/delivery/exactly_once.py TOPIC OUTPUT_TOPIC [--bootstrap HOST:PORT]

Ends when nothing has come for `--idle-s` seconds. It holds from topic to topic: what else an
application does while it processes, such as sending a mail, is not taken back.
"""

import argparse
import os

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

LOCAL = "127.0.0.1:9092"
REACHABLE_WITHIN_S = 10


def process(message: Message, producer: Producer, output: str) -> None:
    """Whatever an application makes of a record; here, the same in capitals."""
    value = message.value()
    # None deletes its key where the output is compacted; an empty value would not.
    changed = None if value is None else value.upper()
    producer.produce(output, key=message.key(), value=changed)


def commit(consumer: Consumer, producer: Producer, message: Message) -> None:
    """The record, and that it was read, or neither of them."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    read = [TopicPartition(topic, partition, offset + 1)]
    producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata())
    producer.commit_transaction()


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
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    # Raises if nobody answers; what follows would wait for them.
    consumer.list_topics(arguments.topic, timeout=REACHABLE_WITHIN_S)
    # Whoever has the same transactional id is the same application: the older one is fenced off,
    # and what it had not committed is aborted.
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "transactional.id": f"{arguments.group}-1",
        }
    )
    producer.init_transactions()
    consumer.subscribe([arguments.topic])
    while (message := consumer.poll(arguments.idle_s)) is not None:
        if (error := message.error()) is not None:
            raise KafkaException(error)
        producer.begin_transaction()
        process(message, producer, arguments.output)
        commit(consumer, producer, message)
    consumer.close()


def parse_arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("topic")
    parser.add_argument("output")
    parser.add_argument("--bootstrap", default=os.environ.get("TIDELOG_BOOTSTRAP", LOCAL))
    parser.add_argument("--group", default="exactly-once")
    parser.add_argument("--idle-s", type=float, default=10.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
