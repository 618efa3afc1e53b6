"""The cluster as a value, and what may change it."""
