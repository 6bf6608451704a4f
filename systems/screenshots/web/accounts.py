"""An account of credits as its owner sees it."""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast, UsageError
from systems.screenshots.web.problems import Refused


async def show_account(app: Holdfast, owner: str) -> dict[str, Any]:
    try:
        account = await app.credits.account(owner)
        payer = await app.credits.account(account.paid_by) if account.paid_by else account
    except UsageError:  # nobody has ever given it anything
        raise Refused("NOT_FOUND", "This owner has no account yet; its first credits make one.") from None
    return {
        "owner": owner,
        "account": payer.id,
        "availableCredits": payer.available,
        "reservedCredits": payer.reserved,
        "spentCredits": payer.spent,
    }
