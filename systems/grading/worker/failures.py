"""What can go wrong with one try of a request, in two kinds: it may be tried again, or that is hopeless."""

from __future__ import annotations


class Trial(Exception):
    """*healthy*: what it says about the provider; None is nothing."""

    healthy: bool | None = None

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


class TryAgain(Trial):
    def __init__(
        self, code: str, words: str, *, asked_ms: float | None = None, healthy: bool | None = False
    ) -> None:
        """*asked_ms*: what the provider has asked to wait."""
        super().__init__(code, words)
        self.asked_ms, self.healthy = asked_ms, healthy


class Hopeless(Trial):
    """Given up at once: no try will be better."""


class Held(Exception):
    """The breaker is open: the provider was not called."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"the provider is not called for {wait:.1f} s")
        self.wait = wait
