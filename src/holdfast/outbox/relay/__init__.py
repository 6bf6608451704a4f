"""The relay: deliver messages from the outbox to their targets."""
