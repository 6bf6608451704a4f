"""Speed, measured beside hand-written floors and other queues: `python -m benchmarks --help`."""
