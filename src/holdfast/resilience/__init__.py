"""Pure decisions about retries, dependencies, limits and fairness."""
