"""The dashboard's files: served at every path that is not the API's, under any prefix."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from urllib.parse import unquote, urljoin

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from holdfast.errors import UsageError
from holdfast.server import api, dashboard
from holdfast.server.dashboard_app import STATE, Dashboard
from tests.server.world import API, new_app

pytestmark = pytest.mark.anyio

INDEX = '<html><head><base href="./" /><script src="./assets/a-1.js"></script></head></html>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a-1.js").write_text("1")
    (tmp_path / "assets" / "a-1.js.gz").write_bytes(gzip.compress(b"1"))
    (tmp_path / "index.html").write_text(INDEX)
    return tmp_path


def site_of(folder: Path, frame_ancestors: str = "'none'") -> ASGIApp:
    return Dashboard(api(new_app()), frame_ancestors=frame_ancestors, folder=folder)


def client(site: ASGIApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=site), base_url="http://jobs.example")


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/019a", "/jobs/a%2Fb", "/a/b/c"])
@pytest.mark.parametrize("prefix", ["", "/a", "/a/b", "/x%20y"])
async def test_every_page_finds_its_files_wherever_it_is_mounted(
    folder: Path, path: str, prefix: str
) -> None:  # E68
    site = site_of(folder)
    if prefix:
        site = Starlette(routes=[Mount(prefix.replace("%20", " "), app=site)])
    async with client(site) as browser:
        page = await browser.get(f"{prefix}{path}")
        base = urljoin(str(page.request.url), re.findall('<base href="(.*?)"', page.text)[0])
        assert base == f"http://jobs.example{prefix}/"
        assert (await browser.get(urljoin(base, "./assets/a-1.js"))).content == b"1"
        assert (await browser.get(urljoin(base, "api/v1/jobs"))).status_code == 401


async def test_a_proxy_that_strips_the_prefix_changes_nothing(folder: Path) -> None:  # E68
    async with client(site_of(folder)) as behind:
        page = await behind.get("/jobs/019a")  # the browser is at /a/b/jobs/019a
    base = re.findall('<base href="(.*?)"', page.text)[0]
    assert urljoin("http://jobs.example/a/b/jobs/019a", base) == "http://jobs.example/a/b/"


async def test_a_mount_without_its_slash_leads_to_the_one_with_it(folder: Path) -> None:  # E68
    inner, root = site_of(folder), ""

    async def mounted(scope, receive, send):  # type: ignore[no-untyped-def]
        await inner(scope | {"root_path": root}, receive, send)

    for path in ("/a/b", "/a/b%20c"):
        root = unquote(path)
        async with client(mounted) as browser:
            answer = await browser.get(path)
        to = urljoin(f"http://jobs.example{path}", answer.headers["location"])
        assert to == f"http://jobs.example{path}/"


async def test_pages_allow_no_inline_script_and_no_frame_unless_it_is_named(folder: Path) -> None:  # E68
    for given in ("'none'", "'self' https://portal.example"):
        async with client(site_of(folder, given)) as browser:
            for path in ("/", "/jobs/x", "/assets/a-1.js", "/nothing"):
                headers = (await browser.get(path)).headers
                rules = dict(
                    rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";")
                )
                assert rules["default-src"] == "'none'"
                assert rules["script-src"] == rules["style-src"] == "'self'"
                assert rules["frame-ancestors"] == given
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["referrer-policy"] == "no-referrer"


def test_frame_ancestors_cannot_add_other_rules() -> None:  # E68
    for text in ("'none'; script-src *", "a, b", "a\nb"):
        with pytest.raises(UsageError, match="frame_ancestors"):
            new_app(frame_ancestors=text)


async def test_files_are_kept_by_browsers_and_pages_are_not(folder: Path) -> None:
    async with client(site_of(folder)) as browser:
        plain = await browser.get("/assets/a-1.js", headers={"Accept-Encoding": "identity"})
        packed = await browser.get("/assets/a-1.js", headers={"Accept-Encoding": "gzip"})
        page = await browser.get("/")
        assert (plain.content, "content-encoding" in plain.headers) == (b"1", False)
        assert (packed.content, packed.headers["content-encoding"]) == (b"1", "gzip")
        assert "immutable" in plain.headers["cache-control"]
        assert page.headers["cache-control"] == "no-store"
        assert (await browser.get("/assets/b-2.js")).status_code == 404
        for path in ("/../access.py", "/assets/../../x", "/%2e%2e/access.py", f"/{STATE}"):
            assert "<base" in (await browser.get(path)).text  # a page, which says that there is none


async def test_pages_are_only_read(folder: Path) -> None:
    async with client(site_of(folder)) as browser:
        assert (await browser.post("/jobs")).status_code == 405
        head = await browser.head("/jobs")
        assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, "text/html")


async def test_the_api_answers_as_without_the_dashboard(folder: Path) -> None:  # E66
    async with client(site_of(folder)) as browser, client(api(new_app())) as alone:
        for path in (f"{API}/jobs", f"{API}/nothing", "/livez", "/readyz", "/metrics"):
            one, other = await browser.get(path), await alone.get(path)
            assert (one.status_code, one.headers["content-type"]) == (
                other.status_code,
                other.headers["content-type"],
            )
            assert "content-security-policy" not in one.headers


@pytest.mark.parametrize(
    ("state", "said"),
    [("building", "reloads by itself"), ("no <Node>", "no &lt;Node&gt;"), (None, "tools/dashboard")],
)
async def test_until_it_is_built_the_address_says_what_is_missing(
    tmp_path: Path, state: str | None, said: str
) -> None:  # E68
    if state is not None:
        (tmp_path / STATE).write_text(state)
    site = site_of(tmp_path)
    async with client(site) as browser:
        page = await browser.get("/jobs")
        assert page.status_code == 503
        assert said in page.text
        assert ('http-equiv="refresh"' in page.text) is (state == "building")
        (tmp_path / "index.html").write_text(INDEX)  # built meanwhile
        assert (await browser.get("/jobs")).status_code == 200
        (tmp_path / "index.html").write_text(INDEX.replace("<html>", "<html lang='en'>"))
        os.utime(tmp_path / "index.html", ns=(1, 1))
        assert "lang" in (await browser.get("/jobs")).text  # and once more


async def test_the_public_function_mounts_both() -> None:  # E68
    site = Starlette(routes=[Mount("/holdfast", app=dashboard(new_app()))])
    async with client(site) as browser:
        assert (await browser.get("/holdfast/")).headers["content-type"].startswith("text/html")
        assert (await browser.get(f"/holdfast{API}/jobs")).status_code == 401
