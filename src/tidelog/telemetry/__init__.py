"""Counters, histograms and structured log lines."""
