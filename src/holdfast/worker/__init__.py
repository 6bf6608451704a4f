"""The worker process: claim, execute, settle, and never keep a job it cannot answer for."""
