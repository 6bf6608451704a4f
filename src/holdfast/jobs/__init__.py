"""The pure core: jobs, their states and moves, error codes and verdicts. No I/O, no clock, no await."""
