"""Metrics for Prometheus: what this process has done, and how the jobs stand."""
