"""The secrets of webhooks, which are derived and not stored.

```text
  key of the app ──┐
                   ├─▶ HMAC-SHA256 ──▶ whsec_…
  salt (stored) ───┘
```

The database holds a random salt for each secret. A copy of the database signs nothing without the key of the
app: the setting `secret`, or else a file beside a SQLite database. A check value is stored with the salt. It
identifies the right key, so that a process with a wrong key sends nothing instead of messages that no
receiver accepts.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import sha256

from holdfast.errors import Conflict
from holdfast.webhooks.model import Seed, Webhook
from holdfast.webhooks.signature import PREFIX, write_secret

_CHECK_DIGITS = 16


class UnknownSecret(Conflict):
    """The secret of a webhook was derived from a key that this process does not have."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(
            f"the secret of webhook {webhook_id} was made with another HOLDFAST_SECRET; give every process of this app"
            " the same one (`new,old` while you replace it), or rotate the webhook's secret"
        )


def make_seed(webhook_id: str, salt: bytes, keys: Sequence[bytes]) -> Seed:
    """Return the salt and check value to store for a new secret, derived from the first of *keys*."""
    secret = _secret(webhook_id, salt.hex(), keys[0])
    return Seed(salt.hex(), _check(secret))


def without_expired_seeds(webhook: Webhook, now: datetime) -> Webhook:
    """Return *webhook* without its expired seeds."""
    seeds = tuple(seed for seed in webhook.seeds if seed.until is None or seed.until > now)
    return webhook if seeds == webhook.seeds else replace(webhook, seeds=seeds)


def with_secrets(webhook: Webhook, keys: Sequence[bytes]) -> Webhook:
    """Return *webhook* with its secrets. Raise `UnknownSecret` if one was not derived from any of *keys*."""
    return replace(webhook, secrets=tuple(_reveal(webhook.id, seed, keys) for seed in webhook.seeds))


def with_known_seeds(webhook: Webhook, keys: Sequence[bytes]) -> Webhook:
    """Return *webhook* with only those seeds whose secrets were derived from one of *keys*."""
    made = [seed for seed in webhook.seeds if _made_with(webhook.id, seed, keys) is not None]
    return replace(webhook, seeds=tuple(made))


def _reveal(webhook_id: str, seed: Seed, keys: Sequence[bytes]) -> str:
    secret = _made_with(webhook_id, seed, keys)
    if secret is None:
        raise UnknownSecret(webhook_id)
    return secret


def _made_with(webhook_id: str, seed: Seed, keys: Sequence[bytes]) -> str | None:
    if seed.salt.startswith(PREFIX):  # an older version stored the secret itself; a rotation replaces it
        return seed.salt
    made = (_secret(webhook_id, seed.salt, key) for key in keys)
    return next((secret for secret in made if hmac.compare_digest(_check(secret), seed.check)), None)


def _secret(webhook_id: str, salt: str, key: bytes) -> str:
    return write_secret(hmac.digest(key, f"webhook\0{webhook_id}\0{salt}".encode(), sha256))


def _check(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()[:_CHECK_DIGITS]
