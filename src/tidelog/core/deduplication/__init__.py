"""Records that were sent before (D5)."""
