"""Processes and clients that tests of several folders, and the benchmarks, share."""
