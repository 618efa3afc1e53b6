"""The six scenarios of the document, measured here and beside Apache Kafka (B1, B2)."""
