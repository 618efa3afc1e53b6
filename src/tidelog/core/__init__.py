"""Machines: every rule of the system, and no I/O."""
