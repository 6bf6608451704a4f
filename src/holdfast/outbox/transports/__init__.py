"""The targets of the relay: one module per kind, each behind its own extra."""
