"""Frozen settings under Kafka's names, validated once."""
