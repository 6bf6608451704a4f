"""An outage with real processes: workers, and an HTTP service that goes down and comes back slowly.

`python -m benchmarks.outage` runs the full one (5,000 jobs, 60 s down) on a private PostgreSQL.
"""
