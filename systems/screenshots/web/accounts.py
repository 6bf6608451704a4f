"""The JSON form of a credit account."""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast, UsageError
from holdfast.contrib.credits import Credits
from systems.screenshots.web.problems import Refused


async def show_account(app: Holdfast, owner: str) -> dict[str, Any]:
    """Return the balance of the account that pays for *owner*. Raises `Refused` when there is none."""
    try:
        account = await Credits.of(app).account(owner)
        payer = await Credits.of(app).account(account.paid_by) if account.paid_by else account
    except UsageError:  # it was never granted any credits
        raise Refused("NOT_FOUND", "This owner has no account yet; its first credits create one.") from None
    return {
        "owner": owner,
        "account": payer.id,
        "availableCredits": payer.available,
        "reservedCredits": payer.reserved,
        "spentCredits": payer.spent,
    }
