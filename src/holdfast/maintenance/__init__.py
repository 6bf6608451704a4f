"""Background tasks that any process may run at any time: each is small, idempotent and safe to run twice."""
