"""Explain why a job is not running. Pure."""
