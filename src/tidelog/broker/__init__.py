"""Runners: asyncio around the machines."""
