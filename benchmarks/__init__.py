"""Benchmarks of Holdfast against hand-written floors and other queues: `python -m benchmarks --help`."""
