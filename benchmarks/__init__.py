"""One script per question about speed and size; the last answers are in RESULTS.md."""
