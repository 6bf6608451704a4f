"""What can go wrong with one try of a request: it may be tried again, no try will be better, or it is too late.

`Retryable` and `Fatal` are how the breaker of the provider tells an outage from an answer.
"""

from __future__ import annotations

from holdfast import Fatal, Retryable
from systems.grading.worker.ledger import Cost


class TryAgain(Retryable):
    """It failed and may be tried again. *asked_ms*: what the provider asked to wait."""

    code: str

    def __init__(self, code: str, words: str, *, asked_ms: float | None = None) -> None:
        super().__init__(words, code=code)
        self.words, self.asked_ms = words, asked_ms


class Hopeless(Fatal):
    """Given up at once: no try will be better."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words, code=code)
        self.words = words


class Expired(Exception):
    """The deadline has passed: the provider was not called. *spent* is what calls before it have cost, if there were any."""

    def __init__(self, spent: Cost | None = None) -> None:
        super().__init__("the deadline has passed")
        self.spent = spent
