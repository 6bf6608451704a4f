"""The pages about the API: what they show is run, against the live API where it needs one."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.client.test_typescript import HOME, found_node
from tests.client.world import Live
from tests.conftest import installed
from tests.project.test_docs import Block, run

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
SERVER = "http://127.0.0.1:8000"


def code(page: str, language: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_python_client_does_what_its_page_shows(
    live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # E69
    monkeypatch.setenv("HOLDFAST_KEY", live.key)
    names: dict[str, Any] = {}
    [_jobs, *shown] = code("use-the-client.md", "python")
    assert all(SERVER in one for one in shown)
    with asyncio.Runner() as runner:
        for one in shown:
            run(Block(0, one.replace(SERVER, live.url)), PAGES / "use-the-client.md", names, runner)
    said = capsys.readouterr().out
    assert said.startswith("INVALID ")
    assert re.search(r"^\d+ (complete|failed) [0-9a-f-]{36}$", said, re.MULTILINE)


def test_the_typescript_client_does_what_its_page_shows(live: Live, tmp_path: Path) -> None:  # E69
    node = installed(found_node)
    [shown] = code("use-the-client.md", "js")
    script = shown.replace('"holdfast-client"', f'"{(HOME / "client.js").as_uri()}"').replace(
        SERVER, live.url
    )
    (tmp_path / "shown.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [node, "shown.mjs"],
        cwd=tmp_path,
        env={"HOLDFAST_KEY": live.key},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a.pdf:3\n")


@pytest.mark.anyio
async def test_the_site_of_the_page_answers_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code("mount-the-api.md", "python")[0], names)
    site, app = names["site"], names["app"]
    async with site.router.lifespan_context(site):
        _, secret = await app.keys.create("admin")
        async with _asking(site) as client:
            job = (await client.post("/upload", params={"pdf": "a"})).json()["job"]
            assert (await client.get(f"/holdfast/api/v1/jobs/{job}")).status_code == 401
            client.headers["Authorization"] = f"Bearer {secret}"
            assert (await client.get(f"/holdfast/api/v1/jobs/{job}")).json()["task"] == "convert"
            made = await client.post("/holdfast/api/v1/jobs", json={"task": "convert", "args": {"pdf": "b"}})
            assert made.headers["location"].startswith("/holdfast/api/v1/jobs/")


def test_django_and_the_api_live_in_one_site(tmp_path: Path) -> None:  # E66
    """In a process of its own: Django is set up once in one."""
    (tmp_path / "mysite").mkdir()
    (tmp_path / "mysite" / "settings.py").write_text(_SETTINGS, encoding="utf-8")
    (tmp_path / "mysite" / "urls.py").write_text(_URLS, encoding="utf-8")
    (tmp_path / "mysite" / "asgi.py").write_text(code("mount-the-api.md", "python")[1], encoding="utf-8")
    (tmp_path / "jobs.py").write_text(code("use-the-client.md", "python")[0], encoding="utf-8")
    (tmp_path / "ask.py").write_text(_ASK, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "ask.py"], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["200", "Django", "401", "201"]


def _asking(site: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=site), base_url="http://site.example")


_SETTINGS = """
SECRET_KEY = "only for this test"
ALLOWED_HOSTS = ["site.example"]
ROOT_URLCONF = "mysite.urls"
"""
_URLS = """
from django.http import HttpResponse
from django.urls import path

urlpatterns = [path("", lambda request: HttpResponse("Django"))]
"""
_ASK = """
import asyncio

import httpx2
from jobs import app
from mysite.asgi import application


async def ask() -> None:
    transport = httpx2.ASGITransport(app=application)
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://site.example") as client:
        page = await client.get("/")
        print(page.status_code, page.text)
        job = {"task": "convert", "args": {"pdf": "a"}}
        print((await client.post("/holdfast/api/v1/jobs", json=job)).status_code)
        _, secret = await app.keys.create("owner", owner="alice")
        client.headers["Authorization"] = f"Bearer {secret}"
        print((await client.post("/holdfast/api/v1/jobs", json=job)).status_code)


asyncio.run(ask())
"""
