"""Kafka's files. Blocking, no event loop, no protocol."""
