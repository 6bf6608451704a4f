"""Decide what one transaction does to the ledger: whose credits it takes, from which grants, and its entries.

A `Posting` is filled by these decisions, and written in the transaction of the moves that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from holdfast.contrib.credits.errors import InsufficientCredits
from holdfast.contrib.credits.model import (
    AVAILABLE,
    EXPIRED,
    RESERVED,
    SPENT,
    CreditHold,
    Draw,
    Grant,
    LedgerEntry,
    Sold,
    granted,
)


@dataclass(slots=True)
class Wallet:
    """One account, locked in one transaction. *grants* are all that have something left."""

    id: str
    available: int = 0
    grants: dict[str, Grant] = field(default_factory=dict)

    def usable(self, now: datetime) -> list[Grant]:
        """Return the grants in the order in which they are spent: the first to expire, then the oldest of the others."""
        found = [g for g in self.grants.values() if g.remaining and not g.has_expired(now)]
        return sorted(found, key=lambda g: (g.expires_at is None, g.expires_at or now, g.created_at, g.id))

    def usable_credits(self, now: datetime) -> int:
        return sum(grant.remaining for grant in self.usable(now))


class Sale(NamedTuple):
    """A generation of a job that is to be paid for."""

    sold: Sold
    owner: str
    price: int
    is_retry: bool
    by: str


@dataclass(slots=True)
class Posting:
    """The rows that one transaction writes. If one of its methods raises, nothing is written."""

    now: datetime
    wallets: dict[str, Wallet] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)
    holds: list[CreditHold] = field(default_factory=list)
    new_grants: list[Grant] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)  #: wallets that differ from what is stored
    drawn: set[str] = field(default_factory=set)  #: grants that do

    # -- coming in --------------------------------------------------------------------------------------------------
    def grant(self, grant: Grant) -> None:
        """Add new credits to their account."""
        wallet = self.wallets[grant.account]
        self.new_grants.append(grant)
        wallet.grants[grant.id] = grant
        self._move(wallet, grant.amount)
        said = {"reason": "grant", "by": grant.by, "note": grant.note}
        self._enter(
            f"grant:{grant.id}",
            grant.account,
            {AVAILABLE: grant.amount, granted(grant.source): -grant.amount},
            **said,
        )

    def take(self, wallet: Wallet, amount: int, tx: str, *, by: str, note: str) -> None:
        """Remove credits, as an operator asks for."""
        self._draw(wallet, amount)
        entries = {AVAILABLE: -amount, granted("adjustment"): amount}
        self._enter(f"adjust:{tx}", wallet.id, entries, reason="adjust", by=by, note=note)

    # -- jobs -------------------------------------------------------------------------------------------------------
    def reserve(self, sales: Sequence[Sale], payers: Mapping[str, str]) -> None:
        """Take what *sales* cost, all or none. *payers* has the owners for whom another account pays.

        Raises `InsufficientCredits`.
        """
        self._afford(sales, payers)
        for sale in sales:
            payer = self.wallets[payers.get(sale.owner, sale.owner)]
            hold = CreditHold(
                job_id=sale.sold.job_id,
                generation=sale.sold.generation,
                account=payer.id,
                owner=sale.owner,
                price=sale.price,
                draws=self._draw(payer, sale.price),
                at=self.now,
            )
            self.holds.append(hold)
            self._settle(hold, "reserve", {AVAILABLE: -sale.price, RESERVED: sale.price}, by=sale.by)

    def _afford(self, sales: Sequence[Sale], payers: Mapping[str, str]) -> None:
        """Raise `InsufficientCredits` with the price of all *sales*, before anything is taken."""
        needed: dict[str, int] = {}
        for sale in sales:
            payer = payers.get(sale.owner, sale.owner)
            needed[payer] = needed.get(payer, 0) + sale.price
        for account, price in needed.items():
            has = self.wallets[account].usable_credits(self.now)
            if has < price:
                raise InsufficientCredits(price, has, account)

    def capture(self, hold: CreditHold) -> None:
        """Spend what is reserved: the job is complete."""
        self._settle(hold, "capture", {RESERVED: -hold.price, SPENT: hold.price})

    def give_back(self, hold: CreditHold, by: str = "") -> None:
        """Return what is reserved: the job ended otherwise. What came from a grant that has expired since then expires too."""
        wallet = self.wallets[hold.account]
        back = gone = 0
        for draw in hold.draws:
            grant = wallet.grants[draw.grant]
            if grant.has_expired(self.now):
                gone += draw.amount
                continue
            back += draw.amount
            self._put(wallet, replace(grant, remaining=grant.remaining + draw.amount))
        self._move(wallet, back)
        self._settle(hold, "return", {RESERVED: -hold.price, AVAILABLE: back, EXPIRED: gone}, by=by)

    # -- going ------------------------------------------------------------------------------------------------------
    def expire(self, wallet: Wallet) -> int:
        """Remove the credits that have expired and return how many."""
        total = 0
        for grant in [g for g in wallet.grants.values() if g.remaining and g.has_expired(self.now)]:
            total += grant.remaining
            self._move(wallet, -grant.remaining)
            self._put(wallet, replace(grant, remaining=0))
            entries = {AVAILABLE: -grant.remaining, EXPIRED: grant.remaining}
            self._enter(f"expire:{grant.id}", wallet.id, entries, reason="expire")
        return total

    # -- steps ------------------------------------------------------------------------------------------------------
    def _draw(self, wallet: Wallet, amount: int) -> tuple[Draw, ...]:
        draws, missing = [], amount
        for grant in wallet.usable(self.now):
            part = min(missing, grant.remaining)
            draws.append(Draw(grant.id, part))
            self._put(wallet, replace(grant, remaining=grant.remaining - part))
            missing -= part
            if not missing:
                self._move(wallet, -amount)
                return tuple(draws)
        raise InsufficientCredits(amount, amount - missing, wallet.id)

    def _put(self, wallet: Wallet, grant: Grant) -> None:
        wallet.grants[grant.id] = grant
        self.drawn.add(grant.id)

    def _move(self, wallet: Wallet, amount: int) -> None:
        wallet.available += amount
        self.touched.add(wallet.id)

    def _settle(self, hold: CreditHold, reason: str, amounts: Mapping[str, int], by: str = "") -> None:
        tx = f"{hold.job_id}:{hold.generation}:{reason}"
        for bucket, amount in amounts.items():
            if amount:
                self.entries.append(
                    LedgerEntry(
                        tx=tx, account=hold.account, bucket=bucket, amount=amount, reason=reason,
                        job_id=hold.job_id, generation=hold.generation, by=by,
                    )
                )  # fmt: skip

    def _enter(
        self, tx: str, account: str, amounts: Mapping[str, int], *, reason: str, by: str = "", note: str = ""
    ) -> None:
        self.entries += [
            LedgerEntry(tx=tx, account=account, bucket=bucket, amount=amount, reason=reason, by=by, note=note)
            for bucket, amount in amounts.items()
        ]

    # -- what is written --------------------------------------------------------------------------------------------
    def changed_wallets(self) -> list[Wallet]:
        return [self.wallets[name] for name in sorted(self.touched)]

    def changed_grants(self) -> Iterable[Grant]:
        """Yield the stored grants of which something was taken or returned."""
        new = {grant.id for grant in self.new_grants}
        for wallet in self.wallets.values():
            yield from (g for g in wallet.grants.values() if g.id in self.drawn and g.id not in new)
