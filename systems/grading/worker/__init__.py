"""The Celery workers: `celery -A systems.grading.worker.app worker -P threads`."""
