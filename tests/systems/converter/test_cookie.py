"""The session cookie behind a proxy that speaks TLS: a setting decides, not a header that anybody can send."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from systems.converter.settings import Settings
from systems.converter.tasks import build
from systems.converter.web.site import make_site

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("cookie_secure", "scheme", "expected"),
    [("auto", "http", False), ("auto", "https", True), ("always", "http", True), ("never", "https", False)],
)
async def test_the_cookie_is_secure_as_the_setting_says(
    tmp_path: Path, cookie_secure: str, scheme: str, expected: bool
) -> None:
    environment = {
        "DATABASE_URL": f"sqlite:///{tmp_path}/converter.db",
        "SESSION_KEY_FILE": str(tmp_path / "session.key"),
        "COOKIE_SECURE": cookie_secure,
    }
    converter = build(Settings.read(environment))
    transport = httpx2.ASGITransport(app=make_site(converter))
    headers = {"X-Forwarded-Proto": "https"}
    async with converter.app, httpx2.AsyncClient(transport=transport, base_url=f"{scheme}://a") as asking:
        [cookie] = (await asking.get("/api/jobs", headers=headers)).headers.get_list("set-cookie")
    assert ("; Secure" in cookie) is expected
