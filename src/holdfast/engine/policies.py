"""`app.policies`: overrides of policies, which are laid over the policy file of every process while it runs."""

from __future__ import annotations

import builtins
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.namespace import Namespace
from holdfast.engine.override_feed import read_overrides
from holdfast.engine.ports import Transaction
from holdfast.engine.tables import policy_overrides
from holdfast.errors import Conflict, StoreError, UsageError
from holdfast.jobs.moves import Kind
from holdfast.tasks.policy_file.in_force import PolicyValue, values_in_force
from holdfast.tasks.policy_file.overrides import (
    Override,
    checked_value,
    overlapping,
    parts_of,
    read_key,
    to_toml,
    toml_value,
)
from holdfast.tasks.policy_file.tables import dotted
from holdfast.values.duration import Duration
from holdfast.values.validation import optional_span, whole

#: How many overrides may be in force. A value that stays belongs in the policy file.
MOST_OVERRIDES = 500
_LONGEST_NAME, _LONGEST_REASON = 300, 500
_NEWEST = 2**62


class PolicyOverrides(Namespace):
    """Values of policies that are set while everything runs: over the code, and over the policy file."""

    async def set(
        self,
        key: str,
        value: Any,
        *,
        reason: str = "",
        by: str = "api",
        lasts: Duration | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Override:
        """Override one key of a policy: `set("tasks.convert.max_attempts", 5, reason="bank is slow")`.

        Processes that run jobs, maintenance or the API follow within a few seconds, this one at once.

        Args:
            key: As in the policy file: `queues.mail.limits.rate`, `owners."user:7".quota`.
            value: As in the policy file.
            reason: Why; it is recorded.
            by: Who sets it; it is recorded.
            lasts: How long, by the store's clock; without it until it is unset.
            version: Set it only if the override of this key has this version; 0: if there is none.
            token: An id that names this call, which may be repeated.

        Raises:
            UsageError: The key or the value is wrong, or contradicts what is in force.
            Conflict: The override has another version, or there are too many.
        """
        engine = await self._engine()
        key = dotted(read_key(key))
        wanted = Override(
            key=key,
            value=checked_value(key, value),
            version=0,
            by=_text("by", by, _LONGEST_NAME, least=1),
            reason=_text("reason", reason, _LONGEST_REASON),
            set_at=engine.clock.now(),
        )
        span = optional_span("lasts", lasts)
        if span is not None and not span:
            raise UsageError(
                "an override that lasts no time is of no use; leave lasts out for one that stays"
            )
        if version is not None:
            whole("version", version, 0, _NEWEST)
        call = engine.ids.job_id() if token is None else _text("token", token, _LONGEST_NAME, least=1)

        async def change(transaction: Transaction) -> Override:
            number = await _begin_change(transaction)
            if (done := await policy_overrides.find_call(transaction, key, call)) is not None:
                return done
            in_force = {one.key: one for one in await policy_overrides.in_force_in(transaction)}
            await _refuse_other_version(transaction, key, in_force.get(key), version)
            _check(engine, wanted, [one for one in in_force.values() if one.key != key])
            if key in in_force:
                await policy_overrides.end(
                    transaction, key, by=wanted.by, reason=f"replaced by version {number}"
                )
            found = await policy_overrides.add(
                transaction, replace(wanted, version=number), token=call, lasts=span
            )
            before = in_force[key].value if key in in_force else None
            await transaction.record(Kind.override_set, _meta(found, before=before, until=found.expires_at))
            return found

        found = await engine.store.transact(change)
        await _follow(engine)
        return found

    async def unset(self, key: str, *, reason: str = "", by: str = "api", version: int | None = None) -> bool:
        """End the override of *key*, and return whether there was one. The policy file and the code count again.

        Args:
            key: As it was set.
            reason: Why; it is recorded.
            by: Who ends it; it is recorded.
            version: End it only if it has this version.

        Raises `Conflict` when it has another version.
        """
        engine = await self._engine()
        key = dotted(read_key(key))
        _text("by", by, _LONGEST_NAME, least=1)
        _text("reason", reason, _LONGEST_REASON)

        async def change(transaction: Transaction) -> bool:
            await _begin_change(transaction)
            in_force = {one.key: one for one in await policy_overrides.in_force_in(transaction)}
            last = await policy_overrides.newest_of(transaction, key)
            if last is not None and (last.version, last.ended_by, last.ended_reason) == (version, by, reason):
                return True  # this call has ended it, and its answer was lost
            await _refuse_other_version(transaction, key, in_force.get(key), version)
            if key not in in_force:
                return False
            await policy_overrides.end(transaction, key, by=by, reason=reason)
            ended = replace(in_force[key], by=by, reason=reason)
            await transaction.record(Kind.override_unset, _meta(ended))
            return True

        was_set = await engine.store.transact(change)
        await _follow(engine)
        return was_set

    async def list(self) -> builtins.list[Override]:
        """Return the overrides that are in force, oldest first."""
        return await policy_overrides.in_force((await self._engine()).store)

    async def history(
        self, key: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> builtins.list[Override]:
        """Return overrides, those that have ended too, newest first: of one *key*, of versions below *before*."""
        whole("limit", limit, 1, 1000)
        below = _NEWEST if before is None else whole("before", before, 0, _NEWEST)
        only = None if key is None else dotted(read_key(key))
        return await policy_overrides.history((await self._engine()).store, only, before=below, limit=limit)

    async def in_force(self, under: str | None = None) -> builtins.list[PolicyValue]:
        """Return each value that is in force, where it comes from, and what it would be without its override.

        The file and the code are those of this process. With *under*, only keys of that section: `tasks.convert`.
        """
        engine, path = await self._engine(), () if under is None else parts_of(under)
        overrides = await policy_overrides.in_force(engine.store)
        return values_in_force(engine.admission.reloader, engine.tasks, overrides, path)

    async def export(self) -> str:
        """Return the overrides in force as the text of a policy file."""
        return to_toml(await self.list())


async def end_expired(engine: Engine) -> int:
    """Record the ends of overrides that have expired, and return how many there were. They have no effect any more."""
    if not await policy_overrides.has_expired(engine.store):
        return 0
    return await engine.store.transact(_end_expired)


async def _follow(engine: Engine) -> None:
    """Put the change in force here. It is stored: if the store fails only now, this process follows later, like the others."""
    with suppress(StoreError):
        await read_overrides(engine)


async def _begin_change(transaction: Transaction) -> int:
    """Return the version of the change that begins. No other change happens meanwhile."""
    version = await policy_overrides.take_version(transaction)
    await _end_expired(transaction)
    return version


async def _end_expired(transaction: Transaction) -> int:
    ended = await policy_overrides.end_expired(transaction)
    for override in ended:
        await transaction.record(Kind.override_expired, _meta(override))
    return len(ended)


async def _refuse_other_version(
    transaction: Transaction, key: str, current: Override | None, version: int | None
) -> None:
    """Raise `Conflict`, which says who came first, if the override of *key* has another version than the caller knows."""
    if version is None or version == (current.version if current else 0):
        return
    last = current or await policy_overrides.newest_of(transaction, key)
    if last is None:
        raise Conflict(f"{key} was never overridden, so version {version} cannot be changed; read it again")
    if current is not None:
        what = f"{last.by} set it to {toml_value(last.value):.60} at {_minute(last.set_at)} (version {last.version})"
    elif last.ended_by is None:
        what = f"it expired at {_minute(last.ended_at)}"
    else:
        what = f"{last.ended_by} unset it at {_minute(last.ended_at)}"
    raise Conflict(f"{key} has changed since you read it: {what}; read it again")


def _check(engine: Engine, wanted: Override, others: builtins.list[Override]) -> None:
    """Raise if *wanted* is not valid beside the *others* that are in force, or is one too many."""
    if len(others) >= MOST_OVERRIDES:
        raise Conflict(
            f"there are {len(others)} overrides, the most there may be; write values that stay into the policy file, and unset them"
        )
    if (other := overlapping(wanted.path, others)) is not None:
        raise UsageError(
            f"{wanted.key}: {other.by} has overridden {other.key}; unset that first, or change it as a whole"
        )
    reloader = engine.admission.reloader
    _, refused = reloader.fitting(engine.tasks, others)
    reloader.read(engine.tasks, [*(one for one in others if one.key not in refused), wanted])


def _text(name: str, value: str, most: int, *, least: int = 0) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise UsageError(f"{name} is {value!r:.60}; it is {least} to {most} printable characters")
    return value


def _minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _meta(override: Override, **more: Any) -> dict[str, Any]:
    known = {
        "key": override.key,
        "value": override.value,
        "by": override.by,
        "reason": override.reason or None,
        "version": override.version,
    }
    return known | more
