"""The Celery side: `celery -A systems.grading.worker.app worker -P threads`. It knows the broker, the provider and its ledger."""
