"""Messages to other systems: stored in a transaction with anything else, delivered by a relay."""
