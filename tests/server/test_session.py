"""Sessions of the dashboard: a key is exchanged for a cookie, which ends with the key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from http.cookies import SimpleCookie

import httpx2
import pytest

from holdfast.engine.access import Action, Role
from holdfast.engine.keys import digest_of
from holdfast.engine.tables import access_keys
from holdfast.server.access import CACHED_FOR, GUESSES_PER_SECOND
from holdfast.server.session_cookie import LASTS
from holdfast.testing import ManualClock
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

PAGE = {"Holdfast-Session": "1"}


def timed_house() -> tuple[House, ManualClock]:
    clock = ManualClock()
    return new_house(new_app(clock=clock), clock=clock), clock


@asynccontextmanager
async def browser(house: House, host: str = "127.0.0.1") -> AsyncIterator[httpx2.AsyncClient]:
    async with house.client(host, headers=PAGE) as opened:
        yield opened


async def sign_in(page: httpx2.AsyncClient, secret: str) -> httpx2.Response:
    return await page.post(f"{API}/session", json={"key": secret})


@pytest.mark.parametrize("role", Role)
async def test_a_session_may_do_what_its_key_may(role: Role) -> None:  # E66, E68
    house = new_house()
    owner = "alice" if role is Role.OWNER else None
    async with browser(house) as page:
        opened = await sign_in(page, await house.key(role, owner))
        shown = (await page.get(f"{API}/session")).json()
        assert (
            (shown["role"], shown["owner"])
            == (role, owner)
            == (opened.json()["role"], opened.json()["owner"])
        )
        assert set(shown["actions"]) == {action for action in Action if role in action.allowed_to}
        assert (await page.get(f"{API}/keys")).status_code == (200 if role is Role.ADMIN else 403)
        theirs = await house.enqueue("bob")
        assert (await page.get(f"{API}/jobs/{theirs}")).status_code == (403 if role is Role.OWNER else 200)


async def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites() -> None:  # E66
    house = new_house()
    async with browser(house) as page:
        secret = await house.key(Role.ADMIN)
        opened = await sign_in(page, secret)
        [cookie] = SimpleCookie(opened.headers["set-cookie"]).values()
        assert (cookie["httponly"], cookie["samesite"], cookie["secure"]) == (True, "strict", "")
        assert cookie["path"] == ""  # the browser then sends it to the API below this mount only
        assert secret not in cookie.value
        by_tls = await page.post(
            f"{API}/session", json={"key": secret}, headers={"Origin": "https://jobs.example"}
        )
        assert SimpleCookie(by_tls.headers["set-cookie"]).popitem()[1]["secure"]


async def test_a_cookie_without_the_header_of_the_dashboard_counts_for_nothing() -> None:  # E66
    house = new_house()
    job_id = await house.enqueue()
    async with browser(house, "192.0.2.1") as page:
        await sign_in(page, await house.key(Role.ADMIN))
        del page.headers["Holdfast-Session"]  # as a form or a script of another site sends it
        for path in (f"{API}/jobs", f"{API}/session"):
            assert (await page.get(path)).status_code == 401
        assert (await page.post(f"{API}/jobs/{job_id}/cancel")).status_code == 401
    assert (await house.app.jobs.get(job_id)).state == "queued"


async def test_a_page_needs_a_session_even_where_programs_of_this_machine_need_no_key() -> None:  # E66
    house = new_house(without_key="loopback")
    async with house.client() as program:
        assert (await program.get(f"{API}/jobs")).status_code == 200
        assert (await program.get(f"{API}/jobs", headers=PAGE)).status_code == 401


async def test_a_session_ends_with_its_key_within_five_seconds() -> None:  # E66, E68
    house, clock = timed_house()
    async with browser(house) as page:
        await sign_in(page, await house.key(Role.VIEWER))
        assert (await page.get(f"{API}/jobs")).status_code == 200
        store = (await house.app.runtime.engine()).store
        [key] = await access_keys.every(store)
        await access_keys.revoke(store, key.id)
        assert CACHED_FOR <= 5
        clock.advance(CACHED_FOR)
        assert (await page.get(f"{API}/jobs")).status_code == 401


async def test_a_session_ends_with_the_time_of_its_key_and_after_half_a_day() -> None:  # E66
    house, clock = timed_house()
    async with browser(house) as page:
        await sign_in(page, await house.key(Role.VIEWER, lasts=timedelta(minutes=1)))
        clock.advance(60)
        assert (await page.get(f"{API}/jobs")).status_code == 401
        await sign_in(page, await house.key(Role.VIEWER))
        clock.advance(LASTS.total_seconds() - 1)
        assert (await page.get(f"{API}/jobs")).status_code == 200
        clock.advance(1)
        assert (await page.get(f"{API}/jobs")).status_code == 401


async def test_a_changed_cookie_is_refused() -> None:  # E66
    house = new_house()
    async with browser(house) as page:
        await sign_in(page, await house.key(Role.VIEWER))
        admin = await house.key(Role.ADMIN)
        [(name, good)] = page.cookies.items()
        page.cookies.clear()
        end, _, signature = good.partition(".")[2].rpartition(".")
        forged = (
            f"{digest_of(admin).hex()}.{end}.{signature}",
            f".{end}.{signature}",
            good.replace("2026", "2126").replace("2027", "2127"),
            good[:-1],
            good.rpartition(".")[0],
            "",
            ".",
            "x" * 5000,
            "é.é.é",
        )
        for value in forged:
            answer = await page.get(f"{API}/jobs", headers={b"Cookie": f"{name}={value}".encode()})
            assert answer.status_code == 401, value
        assert (await page.get(f"{API}/jobs", headers={"Cookie": f"{name}={good}"})).status_code == 200


async def test_a_token_opens_one_session() -> None:  # E68
    house = new_house()
    token = house.site.state.context.sessions.new_token()
    async with browser(house) as page, browser(house) as other:
        assert (await page.post(f"{API}/session", json={"token": "guessed"})).status_code == 401
        opened = await page.post(f"{API}/session", json={"token": token})
        assert opened.json()["role"] == "admin"
        assert (await page.get(f"{API}/keys")).status_code == 200
        assert (await other.post(f"{API}/session", json={"token": token})).status_code == 401


async def test_a_session_by_token_is_not_accepted_by_a_server_without_one() -> None:  # E68
    app = new_app()
    house, serving = new_house(app), new_house(app)
    async with browser(house) as page, browser(serving) as other:
        await page.post(f"{API}/session", json={"token": house.site.state.context.sessions.new_token()})
        other.cookies.update(page.cookies)
        assert (await other.get(f"{API}/jobs")).status_code == 401


async def test_signing_out_removes_the_cookie() -> None:  # E68
    house = new_house()
    async with browser(house) as page:
        await sign_in(page, await house.key(Role.VIEWER))
        assert (await page.delete(f"{API}/session")).status_code == 204
        assert not page.cookies
        assert (await page.get(f"{API}/session")).status_code == 401


async def test_guessed_keys_are_limited_at_the_sign_in_too() -> None:  # E66
    house, _ = timed_house()
    async with browser(house) as page:
        answers = [
            (await sign_in(page, f"guess-{number}")).status_code for number in range(GUESSES_PER_SECOND + 1)
        ]
    assert answers == [401] * GUESSES_PER_SECOND + [429]


async def test_a_sign_in_is_no_form_and_names_no_key_in_its_errors() -> None:  # E66
    house = new_house()
    secret = await house.key(Role.ADMIN)
    async with browser(house) as page:
        as_form = await page.post(f"{API}/session", data={"key": secret})
        both = await page.post(f"{API}/session", json={"key": secret, "token": "t"})
    assert (as_form.status_code, both.status_code) == (415, 422)
    assert secret not in as_form.text + both.text


@pytest.mark.service
async def test_sessions_on_postgresql_need_the_secret(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    monkeypatch.delenv("HOLDFAST_SECRET")
    app = new_app(postgres_url)
    async with app:
        house = new_house(app)
        async with browser(house) as page:
            refused = await sign_in(page, await house.key(Role.ADMIN))
            assert refused.status_code == 409
            assert "HOLDFAST_SECRET" in refused.json()["detail"]
            token = house.site.state.context.sessions.new_token()  # one process in development: it needs none
            assert (await page.post(f"{API}/session", json={"token": token})).status_code == 201
            assert (await page.get(f"{API}/jobs")).status_code == 200
