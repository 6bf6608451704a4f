"""How often one owner may call: counted in the store for all servers together, in blocks, so that a request writes nothing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from math import ceil

from holdfast.app import Holdfast
from holdfast.domain.limits import Rate
from holdfast.engine.lane_store import Charge
from holdfast.engine.ports import Clock
from holdfast.server.problems import Problem

#: The share of a rate that a server takes from the store at a time; and for a caller that was refused lately, so that what it may
#: do comes evenly and not in bursts that others wait for.
_BLOCKS, _SMALL_BLOCKS = 20, 1000
_MOST_REMEMBERED = 10_000
#: Refusals that are told at once, and how long the others wait: spread, for those who wait together come back together.
_AT_ONCE, _LATER_SECONDS, _SPREAD_SECONDS = 50, 0.05, 0.04
_GOLDEN = 0.618
_POLICY = "owner"


@dataclass(slots=True)
class _Bucket:
    left: int = 0
    stale_at: float = 0.0  #: what is left is given up then: it was of a time that is over
    shut_until: float = 0.0
    refused: int = 0  #: since it last kept to its rate for a whole window
    leasing: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimits:
    def __init__(self, app: Holdfast, clock: Clock, rate: Rate, *, name: str = "api") -> None:
        """*name* tells what is counted apart from other counts of the same scope."""
        self._app, self._clock, self._rate, self._name = app, clock, rate, name
        self._block = max(1, rate.count // _BLOCKS)
        self._window = rate.per.total_seconds()
        self._policy = f'"{_POLICY}";q={rate.count};w={ceil(self._window)}'.encode()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    async def take(self, scope: str) -> list[tuple[bytes, bytes]]:
        """Count one request of *scope*; the headers that tell how it stands. A problem when it is one too many."""
        bucket = self._bucket(scope)
        if not self._has_some(bucket):
            await self._slow_down(bucket)
            async with bucket.leasing:  # who comes meanwhile waits for the same block
                if not self._has_some(bucket):
                    await self._lease(scope, bucket)
        bucket.left -= 1
        # A lower bound: the server may take further blocks.
        told = f'"{_POLICY}";r={bucket.left};t={ceil(self._window)}'.encode()
        return [(b"ratelimit-policy", self._policy), (b"ratelimit", told)]

    def _bucket(self, scope: str) -> _Bucket:
        bucket = self._buckets.get(scope)
        if bucket is None:
            if len(self._buckets) >= _MOST_REMEMBERED:
                self._buckets.popitem(last=False)
            bucket = self._buckets[scope] = _Bucket()
        else:
            self._buckets.move_to_end(scope)
        return bucket

    def _has_some(self, bucket: _Bucket) -> bool:
        return bucket.left > 0 and self._clock.monotonic() < bucket.stale_at

    async def _slow_down(self, bucket: _Bucket) -> None:
        """Delay the refusals of a caller that ignores them: each costs this process time that others wait for."""
        if self._clock.monotonic() < bucket.shut_until:
            bucket.refused += 1
            if bucket.refused > _AT_ONCE:
                await self._clock.sleep(_LATER_SECONDS + _SPREAD_SECONDS * (bucket.refused * _GOLDEN % 1))

    async def _lease(self, scope: str, bucket: _Bucket) -> None:
        now = self._clock.monotonic()
        if now < bucket.shut_until:
            raise self._refused(bucket.shut_until - now)
        if now - bucket.shut_until > self._window:
            bucket.refused = 0
        block = max(1, self._rate.count // _SMALL_BLOCKS) if bucket.refused > _AT_ONCE else self._block
        charge = Charge(f"{self._name}:{scope}", "rate", self._rate.count, block, self._rate.per)
        [refusal] = await (await self._app.engine()).store.charge([[charge]])
        now = self._clock.monotonic()
        if refusal is not None:
            wait = refusal.resets_in.total_seconds()
            bucket.shut_until = now + wait
            raise self._refused(wait)
        bucket.left, bucket.stale_at = block, now + self._window

    def _refused(self, seconds: float) -> Problem:
        wait = max(1, ceil(seconds))
        headers = {
            "Retry-After": str(wait),
            "RateLimit-Policy": self._policy.decode(),
            "RateLimit": f'"{_POLICY}";r=0;t={wait}',
        }
        detail = f"more than {self._rate} requests; send it again in {wait} s"
        return Problem(
            "RATE_LIMITED", detail, headers=headers, retry_after=wait, **{"violated-policies": [_POLICY]}
        )
