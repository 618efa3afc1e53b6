"""librdkafka's built-in mock broker as a process of its own.

It is written in C, keeps a few megabytes per partition in memory and touches no disk: what the
same client reaches against it is as much as that client can reach at all.
"""

import signal
import sys

from confluent_kafka import Producer


def main() -> None:
    host = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = host.list_topics(timeout=10).brokers.values()
    sys.stdout.write(f"listening on {broker.host}:{broker.port}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
