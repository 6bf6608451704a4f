"""Secrets of webhooks: made from a stored salt and the key of the app, which the database does not hold."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast import Conflict, Holdfast, UsageError
from holdfast.app_secret import key_beside, keys_of
from holdfast.errors import StoreUnavailable
from holdfast.webhooks.model import Seed, Webhook
from holdfast.webhooks.secrets import UnknownSecret, make_seed, with_secrets, without_expired_seeds
from holdfast.webhooks.signature import read_secret, write_secret

NOW = datetime(2026, 5, 1, tzinfo=UTC)
random = partial(os.urandom, 32)
OLD, NEW = keys_of("the old key of this app; which leaked"), keys_of("the new key of this app; kept safe")


def a_webhook(*seeds: Seed, webhook_id: str = "wh_1") -> Webhook:
    return Webhook(id=webhook_id, url="", events=(), owner=None, seeds=seeds, created_at=NOW)


def test_a_secret_is_made_again_from_its_seed_and_the_key() -> None:  # E61
    seed = make_seed("wh_1", b"s" * 32, OLD)
    [secret] = with_secrets(a_webhook(seed), OLD).secrets
    assert len(read_secret(secret)) == 32
    assert with_secrets(a_webhook(seed), OLD).secrets == (secret,)
    others = [
        with_secrets(a_webhook(make_seed("wh_2", b"s" * 32, OLD), webhook_id="wh_2"), OLD),
        with_secrets(a_webhook(make_seed("wh_1", b"t" * 32, OLD)), OLD),
        with_secrets(a_webhook(make_seed("wh_1", b"s" * 32, NEW)), NEW),
    ]
    assert len({secret, *(other.secrets[0] for other in others)}) == 4


def test_another_key_makes_no_other_secret_but_an_error() -> None:  # E61
    seed = make_seed("wh_1", b"s" * 32, OLD)
    with pytest.raises(UnknownSecret, match="give every process of this app the same one"):
        with_secrets(a_webhook(seed), NEW)


def test_a_key_is_replaced_by_naming_the_old_one_behind_it() -> None:  # E61
    both = keys_of("the new key of this app; kept safe, the old key of this app; which leaked")
    assert both == NEW + OLD
    old = make_seed("wh_1", b"s" * 32, OLD)
    new = make_seed("wh_1", b"n" * 32, both)
    assert with_secrets(a_webhook(new), NEW).secrets == with_secrets(a_webhook(new), both).secrets
    assert with_secrets(a_webhook(old), both).secrets == with_secrets(a_webhook(old), OLD).secrets


def test_a_secret_that_an_older_version_stored_is_used_as_it_is() -> None:
    plain = write_secret(b"x" * 32)
    assert with_secrets(a_webhook(Seed(plain, "")), NEW).secrets == (plain,)


def test_seeds_whose_time_is_over_are_left_out() -> None:
    new, old = Seed("00", "11"), Seed("22", "33", NOW)
    assert without_expired_seeds(a_webhook(new, old), NOW - timedelta(seconds=1)).seeds == (new, old)
    assert without_expired_seeds(a_webhook(new, old), NOW).seeds == (new,)


# -- the key of the app -------------------------------------------------------------------------------------------------
def test_the_key_beside_a_database_is_made_once_and_for_this_user_only(tmp_path: Path) -> None:  # E61
    database = tmp_path / "jobs.db"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: key_beside(database, random), range(32)))
    assert len(made) == 1
    [file] = tmp_path.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("jobs.db.secret", 0o600)
    assert made == {key_beside(database, random)}


def test_a_key_that_cannot_be_kept_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "jobs.db.secret").mkdir()
    with pytest.raises(StoreUnavailable, match="set HOLDFAST_SECRET instead"):
        key_beside(tmp_path / "jobs.db", random)


@pytest.mark.anyio
async def test_sqlite_makes_a_key_for_the_first_webhook_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    monkeypatch.delenv("HOLDFAST_SECRET")
    file = tmp_path / "jobs.db.secret"
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        assert await app.webhooks.list() == []
        assert not file.exists()
        webhook = await app.webhooks.create_inbound()
        assert file.exists()
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as again:
        assert (await again.webhooks.retire_secret(webhook.id)).secrets == webhook.secrets


@pytest.mark.anyio
@pytest.mark.service
async def test_postgresql_asks_for_the_setting_before_the_first_webhook(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    monkeypatch.delenv("HOLDFAST_SECRET")
    async with Holdfast(postgres_url) as app:
        with pytest.raises(Conflict, match="set HOLDFAST_SECRET, the same in every process"):
            await app.webhooks.create_inbound()
        assert await app.webhooks.list() == []
    async with Holdfast(postgres_url, secret="a long and random text of 40 characters") as app:
        assert (await app.webhooks.create_inbound()).secrets


@pytest.mark.parametrize("secret", ["guessed", "long enough to be taken as it is,guessed", ","])
def test_a_short_setting_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(UsageError, match="too short; use at least 24 random characters") as refused:
        Holdfast("memory://", secret=secret)
    assert "guessed" not in str(refused.value)


def test_the_setting_is_in_no_text_of_the_settings() -> None:
    assert "guessed" not in repr(Holdfast("memory://", secret="guessed by nobody so far").runtime.settings)
