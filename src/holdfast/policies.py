"""Policies that a task, a dependency or a queue is declared with, beside `Retry` and `Limits`: `from holdfast.policies import …`."""

from holdfast.resilience.backoff import exponential, fixed, polynomial, table
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.limits import Limit
from holdfast.resilience.windows import Window, Windows

__all__ = [
    "BreakerPolicy",
    "BudgetPolicy",
    "Limit",
    "LimiterPolicy",
    "Window",
    "Windows",
    "exponential",
    "fixed",
    "polynomial",
    "table",
]
