"""One module per Kafka API."""
