"""Where the relay delivers: one module a target, each behind its own extra."""
