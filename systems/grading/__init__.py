"""The grading system: Celery workers grade submissions from a broker, and each result counts once."""
