"""Orders come in on one topic, and leave with a price on another. Nothing here knows of tests."""
