"""Sell jobs: credits are reserved when a job is enqueued, captured when it completes, and returned when it ends otherwise (S3).

credits = Credits()
app = Holdfast(extensions=[credits])

@app.task(extra={"price": 2})
async def shoot(url: str) -> str: ...
"""

from holdfast.contrib.credits.errors import InsufficientCredits, UnknownAccount
from holdfast.contrib.credits.extension import Credits
from holdfast.contrib.credits.model import Account, CreditHold, Grant, LedgerEntry

__all__ = [
    "Account",
    "CreditHold",
    "Credits",
    "Grant",
    "InsufficientCredits",
    "LedgerEntry",
    "UnknownAccount",
]
