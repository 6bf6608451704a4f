"""`make run SYSTEM=grading`: broker, provider, API, engine, callbacks and a Celery worker, as children of one process."""
