"""Telling others what happened: signed messages to their addresses, sent by the engine's own jobs."""
