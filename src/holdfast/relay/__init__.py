"""Brings messages from the outbox to their targets."""
