"""Metrics for Prometheus: counts of what this process did, and gauges of the jobs in the store."""
