"""`make run SYSTEM=grading`: run broker, provider, API, engine, callbacks and Celery workers as children."""
