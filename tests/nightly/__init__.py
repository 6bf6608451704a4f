"""Tests that take minutes, and tests of how long something takes. `make nightly` runs them; their marker keeps them out of `make test`."""
