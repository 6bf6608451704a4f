"""An outage with real processes: workers, a real HTTP service that goes down and comes back slowly, and who calls it when.

`python -m benchmarks.outage` runs the whole one (5,000 jobs, 60 s down) on a private PostgreSQL.
"""
