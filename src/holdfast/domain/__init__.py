"""Decisions as plain functions over values: no I/O, no clock, no await, no randomness of their own."""
