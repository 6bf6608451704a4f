"""The service levels promised to customers (E76): tiers with times and compensation, read from a file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: The priority of a retry whose start is promised: the highest of a job. Customers can request HIGH, 10, at
#: most.
PROMISED_PRIORITY = 1000
_Credits = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The promises to the customers of one tier."""

    name: str
    success_within: float | None = None  #: seconds from the request to the picture
    retry_within: float | None = None  #: seconds from a retry by hand to its start
    compensation: int = 0  #: credits for each broken promise, at most the job's price
    compensation_per_month: int = 100  #: the most credits of one account in a calendar month (UTC)


@dataclass(frozen=True, slots=True)
class Promises:
    """The tiers, and the tier of each customer."""

    customers: dict[str, Tier] = field(default_factory=dict)
    tiers: dict[str, Tier] = field(default_factory=dict)

    def most_per_month(self, tier: str) -> int:
        """Return the most credits a month for an account of *tier*; the default for an unknown tier."""
        return self.tiers.get(tier, Tier(name=tier)).compensation_per_month

    def tier_of(self, names: Iterable[str | None]) -> Tier | None:
        """Return the tier of the first of *names* that has one: usually an owner and its payer."""
        return next((self.customers[name] for name in names if name in self.customers), None)


class _TierSection(msgspec.Struct, forbid_unknown_fields=True):
    success_within: str | None = None
    retry_within: str | None = None
    compensation: _Credits = 0
    compensation_per_month: _Credits = 100


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tiers: dict[str, _TierSection] = {}
    customers: dict[str, str] = {}


def read_promises(file: Path) -> Promises:
    """Read the promises from *file*. Raises `UsageError` with one line on what is wrong in it."""
    try:
        parsed = msgspec.convert(tomllib.loads(file.read_text()), _File)
    except OSError:
        raise UsageError(f"{file.name} cannot be read; SLA_FILE names the file of promises") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{file.name}: {error}; see the example systems/screenshots/sla.toml") from None
    tiers = {name: _tier(file.name, name, section) for name, section in parsed.tiers.items()}
    unknown = {tier for tier in parsed.customers.values() if tier not in tiers}
    if unknown:
        known = ", ".join(tiers) or "none"
        raise UsageError(f"{file.name}: customers have the unknown tier {min(unknown)!r}; there are: {known}")
    return Promises({name: tiers[tier] for name, tier in parsed.customers.items()}, tiers)


def _tier(file: str, name: str, section: _TierSection) -> Tier:
    times: dict[str, Any] = {}
    for key in ("success_within", "retry_within"):
        text = getattr(section, key)
        if text is None:
            continue
        number, unit = text[:-1], text[-1:]
        if not (number.isascii() and number.isdigit() and len(number) <= 6) or unit not in _UNITS:
            raise UsageError(f"{file}: tiers.{name}.{key} is {text[:40]!r}; it is a time such as 30s or 10m")
        times[key] = float(int(number) * _UNITS[unit])
    bounds = {key: getattr(section, key) for key in ("compensation", "compensation_per_month")}
    return Tier(name=name, **bounds, **times)
