"""Idempotent and transactional producers."""
