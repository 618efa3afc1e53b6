"""Record batches, as bytes and as values."""
