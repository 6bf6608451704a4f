"""The verbs, the ports they need, and the registry of tasks."""
