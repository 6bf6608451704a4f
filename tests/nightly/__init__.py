"""What takes minutes: `make nightly` runs it. The marker `nightly` keeps it out of `make test`."""
