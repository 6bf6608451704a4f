"""Housekeeping that any process may do at any time: each duty is small, idempotent and safe to run twice."""
