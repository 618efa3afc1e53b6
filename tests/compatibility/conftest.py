"""Makes the fixtures of `kafka_peer` known to every test of this folder."""

from tests.compatibility.kafka_peer import broker, kafka_jars, start_broker, start_kafka, tools

__all__ = ["broker", "kafka_jars", "start_broker", "start_kafka", "tools"]
