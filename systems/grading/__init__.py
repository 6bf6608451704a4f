"""Grading: submissions through a broker to Celery workers, and their results back, once and in time."""
