"""Rate limits of callers. A server takes blocks of a rate from the store, so that most requests write nothing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from math import ceil

from holdfast.engine.requests import Requests
from holdfast.jobs.machine import Clock
from holdfast.resilience.limits import Rate
from holdfast.server.problems import Problem

#: A server takes this fraction of a rate from the store at a time, and the smaller one for a caller that was refused lately, so that
#: the requests it may make come evenly and not in bursts.
_BLOCKS, _SMALL_BLOCKS = 20, 1000
_MOST_REMEMBERED = 10_000
#: How many refusals are sent at once, and how long later ones are delayed. The delays differ, so that the clients do not return together.
_AT_ONCE, _LATER_SECONDS, _SPREAD_SECONDS = 50, 0.05, 0.04
_GOLDEN = 0.618
_POLICY = "owner"


@dataclass(slots=True)
class _Bucket:
    left: int = 0
    stale_at: float = 0.0  #: from then on, what is left belongs to a window that is over
    shut_until: float = 0.0
    refused: int = 0  #: since it last stayed within its rate for a whole window
    leasing: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimits:
    """Counts the requests of callers. *name* separates this count from others of the same scopes."""

    def __init__(self, requests: Requests, clock: Clock, rate: Rate, *, name: str = "api") -> None:
        self._requests, self._clock, self._rate, self._name = requests, clock, rate, name
        self._block = max(1, rate.count // _BLOCKS)
        self._window = rate.per.total_seconds()
        self._policy = f'"{_POLICY}";q={rate.count};w={ceil(self._window)}'.encode()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    async def take(self, scope: str) -> list[tuple[bytes, bytes]]:
        """Count one request of *scope*, and return the headers that describe its rate. Raises `Problem` when it exceeds the rate."""
        bucket = self._bucket(scope)
        if not self._has_some(bucket):
            await self._slow_down(bucket)
            async with bucket.leasing:  # requests that come meanwhile wait for the same block
                if not self._has_some(bucket):
                    await self._lease(scope, bucket)
        bucket.left -= 1
        # A lower bound: the server may take further blocks.
        state = f'"{_POLICY}";r={bucket.left};t={ceil(self._window)}'.encode()
        return [(b"ratelimit-policy", self._policy), (b"ratelimit", state)]

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
        """Delay the refusals of a caller that ignores them, because each costs time of this process."""
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
        refused_for = await self._requests.charge(f"{self._name}:{scope}", self._rate, block)
        now = self._clock.monotonic()
        if refused_for is not None:
            wait = refused_for.total_seconds()
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
