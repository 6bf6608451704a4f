"""Sample pages to take pictures of, for the demo, the tests and the benchmark, without a network."""

from systems.screenshots.samples.server import PAGES, SampleServer

__all__ = ["PAGES", "SampleServer"]
