"""Callbacks of workers: they are read from the broker, verified, and reported to the engine."""
