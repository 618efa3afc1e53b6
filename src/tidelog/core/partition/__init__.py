"""What one partition's replicas know and decide."""
