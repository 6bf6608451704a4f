"""Pages that want more than a picture: into the network behind the browser, or the browser for themselves.

Each of them ends in its time with a code, nobody inside is ever reached, and the same browser takes the next picture.
"""

from __future__ import annotations

import asyncio
import io
import re
import struct
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from PIL import Image

from systems.screenshots.browser import Limits, Studio
from systems.screenshots.browser import chromium as chromium_module
from systems.screenshots.browser import visit as visit_module
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Bounds, Rules
from systems.screenshots.guard.proxy import REFUSAL_SECONDS
from systems.screenshots.shot import Shot
from tests.closed_addresses import CLOSED
from tests.systems.screenshots.places import Inside, Web, forever
from tests.systems.screenshots.test_guard import bracketed

pytestmark = pytest.mark.slow
SECONDS = 10.0  # of a page: less may be over on a busy machine before it has asked for anything
#: What the test's resolver answers, by name; each list is used up from its front, its last entry stays.
NAMES: dict[str, list[Sequence[str]]] = {}
OTHER_URLS = [
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "HTTP://127.0.0.1/",
    "gopher://127.0.0.1/",
    "ftp://127.0.0.1/",
    "data:text/html,<p>x",
    "view-source:http://example.com/",
    "chrome://version",
    "about:blank",
    "javascript:alert(1)",
    "blob:http://example.com/x",
    "\\\\localhost\\c$\\x",
    "http:\\\\127.0.0.1\\",
    "//127.0.0.1/",
    "http:127.0.0.1",
    "http://a@127.0.0.1/",
    "http://example.com@127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://[::ffff:127.0.0.1]/",
    "http://[fe80::1%25lo]/",
    "http://localhost/",
    "http://localhost./",
    "http://LOCALHOST/",
    "http://example.com:22/",
    "http://example.com:5432/",
    "http://example.com/\r\nHost: x",
    "",
    "x" * 3000,
]


#: Of a JPEG: it may have as many as it likes.
COMMENT = b"\xff\xfe\xff\xff" + bytes(65533)


async def resolve(host: str, port: int) -> Sequence[str]:
    answers = NAMES.get(host.rstrip(".").lower())
    if answers is None:
        raise OSError("unknown")
    return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.fixture(scope="module")
async def studio(chromium: str, web: Web, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Studio]:
    """One browser for all; at its end it has asked nobody for a name: names are looked up by the guard."""
    NAMES.update(
        {
            "localhost": [["127.0.0.1", "::1"]],
            "inner.example": [["10.0.0.1"]],
            "half.example": [["93.184.216.34", "127.0.0.1"]],
            "example.com": [["93.184.216.34"]],
        }
    )
    limits = Limits(
        seconds=SECONDS,
        page_bytes=500 << 20,
        dialogs=5,
        popups=5,
        jobs=10_000,  # one browser for all: that it is the same to the end is a part of the test
        network=Bounds(bytes_down=10_000_000),
    )
    rules = Rules(allowed=frozenset({(web.host, web.port)}))
    log = tmp_path_factory.mktemp("chromium") / "net.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chromium_module, "ARGUMENTS", (*chromium_module.ARGUMENTS, f"--log-net-log={log}"))
        # On a busy machine the end of a page may take longer; then Chromium is ended, and not by a page.
        patch.setattr(visit_module, "_CLOSE_SECONDS", 10.0)
        async with Studio(chromium, rules, limits, resolve=resolve) as running:
            yield running
    assert re.findall(r'"qname":"([^"]*)', log.read_text()) == []


@pytest.fixture(autouse=True)
async def unharmed(studio: Studio, inside: Inside) -> AsyncIterator[None]:
    """After each: nobody came inside, and the browser is the same."""
    before = studio.pids
    yield
    assert not inside.reached
    assert studio.pids == before


@pytest.fixture
async def well(studio: Studio, web: Web, unharmed: None) -> AsyncIterator[None]:
    """After what is done to the browser itself: it takes the next picture."""
    yield
    assert (await studio.shoot(Shot(url=web.page("/fine", "fine"), width=50, height=50))).status == 200


async def failure(studio: Studio, url: str, **more: Any) -> Code:
    with pytest.raises(ShotFailed) as told:
        async with asyncio.timeout(60):
            await studio.shoot(Shot(url=url, **more))
    return told.value.code


async def test_every_closed_address_scheme_and_trick_is_refused_in_equal_words_and_never_at_once(
    studio: Studio,
) -> None:  # S1
    async def timed(url: str) -> tuple[Code, str, float]:
        began = time.monotonic()
        with pytest.raises(ShotFailed) as told:
            await studio.shoot(Shot(url=url))
        return told.value.code, str(told.value), time.monotonic() - began

    urls = [f"{scheme}://{bracketed(address)}/" for address in CLOSED for scheme in ("http", "https")]
    answers = await asyncio.gather(*map(timed, urls + OTHER_URLS))
    assert {code for code, _, _ in answers} == {Code.TARGET_NOT_ALLOWED}
    assert len({words for _, words, _ in answers}) == 1
    assert all(seconds >= REFUSAL_SECONDS for _, _, seconds in answers)


async def test_a_name_inside_is_told_in_the_same_words_as_a_name_that_does_not_exist(
    studio: Studio, web: Web
) -> None:  # S1
    async def outcome(url: str) -> tuple[Code, str] | int | None:
        try:
            return (await studio.shoot(Shot(url=url, width=50, height=50, delay=1))).status
        except ShotFailed as failed:
            return failed.code, failed.line(final=False)

    ways = {
        "asked for": "http://NAME/",
        "by TLS": "https://NAME/",
        "redirected to": web.url + "/to-NAME",
        "loaded": web.url + "/with-NAME",
    }
    found = {}
    for name in ("nosuch.example", "inner.example", "half.example"):
        web.redirect(f"/to-{name}", f"http://{name}/")
        web.page(f"/with-{name}", f"<p>here<img src=http://{name}/secret><script>fetch('//{name}/')</script>")
        found[name] = [await outcome(url.replace("NAME", name)) for url in ways.values()]
    failed = (Code.CONNECTION_FAILED, "The page could not be reached. It will be tried again.")
    assert found["nosuch.example"] == [failed, failed, failed, 200]
    assert found["inner.example"] == found["half.example"] == found["nosuch.example"]


#: Ways of a page to somewhere else; INSIDE stands for an address with a port where somebody listens.
WAYS = {
    "a meta refresh": "<meta http-equiv=refresh content='0;url=http://INSIDE/secret'>",
    "a redirect by script": "<script>location.href = 'http://INSIDE/secret'</script>",
    "a late redirect by script": "<script>setTimeout(() => location.replace('http://INSIDE/secret'), 200)</script>",
    "a form": "<form action=http://INSIDE/ method=post></form><script>document.forms[0].submit()</script>",
    "a frame": "<iframe src=http://INSIDE/secret></iframe>",
    "a frame by TLS": "<iframe src=https://INSIDE/secret></iframe>",
    "a frame with a document of its own": "<iframe srcdoc='<img src=http://INSIDE/secret>'></iframe>",
    "a frame of data": "<iframe src='data:text/html,<img src=http://INSIDE/secret>'></iframe>",
    "an object": "<object data=http://INSIDE/secret></object>",
    "an image": "<img src=http://INSIDE/secret>",
    "a name of this machine": "<img src=http://localhost:PORT/secret>",
    "another spelling": "<img src=http://0x7f.1:PORT/secret>",
    "a mapped address": "<img src=http://[::ffff:127.0.0.1]:PORT/secret>",
    "a stylesheet": "<style>@import url(http://INSIDE/secret)</style>",
    "a font": "<style>@font-face {font-family: x; src: url(http://INSIDE/secret)}</style><p style='font-family:x'>x",
    "a fetch": "<script>fetch('http://INSIDE/secret', {mode: 'no-cors'})</script>",
    "a beacon": "<script>navigator.sendBeacon('http://INSIDE/secret', 'x')</script>",
    "an event source": "<script>new EventSource('http://INSIDE/secret')</script>",
    "a WebSocket": "<script>new WebSocket('ws://INSIDE/secret')</script>",
    "a WebSocket by TLS": "<script>new WebSocket('wss://INSIDE/secret')</script>",
    "a worker": (
        "<script>new Worker(URL.createObjectURL(new Blob([\"fetch('http://INSIDE/secret', {mode: 'no-cors'})\"])))</script>"
    ),
    "a worker's WebSocket": (
        "<script>new Worker(URL.createObjectURL(new Blob([\"new WebSocket('ws://INSIDE/')\"])))</script>"
    ),
    "a page that redirects": "<img src=/to-inside>",
}


@pytest.mark.usefixtures("well")
async def test_no_way_of_a_page_leads_inside(studio: Studio, web: Web, inside: Inside) -> None:  # S1
    place = f"127.0.0.1:{inside.port}"
    web.redirect("/to-inside", inside.url)

    async def tried(number: int, page: str) -> Code:
        written = page.replace("INSIDE", place).replace("PORT", str(inside.port))
        return await failure(
            studio, web.page(f"/way/{number}", f"<p>here{written}"), width=100, height=100, delay=4
        )

    codes = []
    ways = list(enumerate(WAYS.values()))
    for begin in range(0, len(ways), 6):  # a few at a time: two cores, and each has a page to draw
        some = ways[begin : begin + 6]
        found = await asyncio.gather(*(tried(*way) for way in some))
        # On a busy machine the time of one may be over before its page has asked for anything: then once more, alone.
        late = Code.NAVIGATION_TIMEOUT
        codes += [await tried(*way) if code is late else code for way, code in zip(some, found, strict=True)]
    assert dict(zip(WAYS, codes, strict=True)) == dict.fromkeys(WAYS, Code.TARGET_NOT_ALLOWED)


async def test_redirects_to_the_inside_and_to_other_schemes_are_not_followed(
    studio: Studio, web: Web, inside: Inside
) -> None:  # S1
    web.redirect("/there", inside.url)
    web.redirect("/twice", "/there")
    web.redirect("/named", f"http://localhost:{inside.port}/")
    urls = [web.url + path for path in ("/there", "/twice", "/named")]
    assert set(await asyncio.gather(*(failure(studio, url) for url in urls))) == {Code.TARGET_NOT_ALLOWED}
    for number, to in enumerate(
        ("file:///etc/passwd", "data:text/html,x", "chrome://version", "about:blank")
    ):
        web.redirect(f"/scheme{number}", to)
    codes = await asyncio.gather(*(failure(studio, f"{web.url}/scheme{number}") for number in range(4)))
    assert set(codes) == {Code.TARGET_NOT_ALLOWED}


@pytest.mark.parametrize(
    "body",
    [
        "<iframe src='file:///etc/passwd' width=600 height=400></iframe>",
        "<img src='file:///etc/passwd'>",
        "<script>location.href = 'file:///etc/passwd'</script>",
    ],
)
async def test_files_of_this_machine_are_not_shown(studio: Studio, web: Web, body: str) -> None:  # S1
    assert await failure(studio, web.page("/files", body), delay=3) is Code.TARGET_NOT_ALLOWED


async def test_a_name_that_changes_its_mind_does_not_lead_the_browser_inside(
    studio: Studio, chromium: str
) -> None:  # S1
    with Web("127.0.0.2") as outer, Inside("127.0.0.1", outer.port) as inner:
        # Asked for the check, for the page, and then for what the page loads: from then on it is the inner one.
        NAMES["rebinding.example"] = [["127.0.0.2"], ["127.0.0.2"], ["127.0.0.1"]]
        outer.page(
            "/",
            "<script>setTimeout(() => fetch('/again?' + Math.random()), 100)</script>",
            Connection="close",
        )
        rules = Rules(allowed=frozenset({("127.0.0.2", outer.port)}))
        async with Studio(chromium, rules, Limits(seconds=SECONDS), resolve=resolve) as own:
            url = f"http://rebinding.example:{outer.port}/"
            picture = await own.shoot(Shot(url=url, width=50, height=50, delay=3))
        assert picture.status == 200
        assert outer.asked == ["/"]
        assert len(NAMES["rebinding.example"]) == 1  # it did ask again
        assert not inner.reached


async def test_what_passes_by_a_proxy_in_other_browsers_does_not_lead_inside(
    studio: Studio, web: Web, inside: Inside
) -> None:  # S1
    body = """<link rel=dns-prefetch href=//asked.example><link rel=preconnect href=http://INSIDE><script>
    const servers = ["INSIDE", "asked.example:3478"].flatMap(
      at => [`stun:${at}`, `turn:${at}?transport=udp`, `turn:${at}?transport=tcp`]);
    for (const url of servers) try {
      const peer = new RTCPeerConnection({iceServers: [{urls: url, username: "x", credential: "x"}]});
      peer.createDataChannel("x");
      peer.onicecandidate = event => event.candidate && document.body.append(event.candidate.candidate);
      peer.createOffer().then(offer => peer.setLocalDescription(offer));
    } catch (error) {}
    navigator.serviceWorker?.register("/worker.js").catch(() => 0);
    try { new WebTransport("https://INSIDE/") } catch (error) {}
    </script>"""
    web.page(
        "/worker.js",
        "fetch('http://INSIDE/secret')".replace("INSIDE", f"127.0.0.1:{inside.port}"),
        kind="text/javascript",
    )
    url = web.page("/around", body.replace("INSIDE", f"127.0.0.1:{inside.port}"))
    try:  # some of these come to the guard, which ends the job; the point is who was not reached
        await studio.shoot(Shot(url=url, width=100, height=100, delay=2))
    except ShotFailed as failed:
        if failed.code is not Code.TARGET_NOT_ALLOWED:
            raise
    assert not inside.reached
    assert "/worker.js" not in web.asked  # service workers outlive their page, so there are none


@pytest.mark.usefixtures("well")
async def test_pages_that_never_end_are_ended(studio: Studio, web: Web) -> None:  # S1
    web.answer("/endless", lambda handler: forever(handler, begin=b"<!--", piece=b"more " * 13_000))
    web.answer(
        "/endless.jpeg", lambda handler: forever(handler, piece=COMMENT, kind="image/jpeg", begin=b"\xff\xd8")
    )
    web.page("/with-image", "<img src=/endless.jpeg>")
    codes = await asyncio.gather(
        failure(studio, f"{web.url}/endless"), failure(studio, f"{web.url}/with-image")
    )
    assert set(codes) == {Code.PAGE_TOO_LARGE}
    loop = web.page("/loop", "<script>location.href = '/loop?' + Math.random()</script>")
    assert await failure(studio, loop) is Code.PAGE_MISBEHAVES


@pytest.mark.usefixtures("well")
async def test_dialogs_without_end_are_ended(studio: Studio, web: Web) -> None:  # S1
    urls = [
        web.page(f"/dialogs/{number}", f"<script>while (true) {call}</script>")
        for number, call in enumerate(("alert(1)", "confirm(1)", "prompt(1)"))
    ]
    assert set(await asyncio.gather(*(failure(studio, url) for url in urls))) == {Code.PAGE_MISBEHAVES}


async def test_a_few_dialogs_are_dismissed_and_the_page_goes_on(studio: Studio, web: Web) -> None:
    body = "<script>alert(1); if (!confirm(2) && prompt(3) === null) document.title = 'dismissed'</script>"
    picture = await studio.shoot(Shot(url=web.page("/polite", body), width=50, height=50))
    assert picture.status == 200


#: Ways to open a window without a click.
WINDOWS = """<body style='margin:0;background:#20a040'><script>
for (let n = 0; n < 60; n++) {
  const link = Object.assign(document.createElement('a'), {href: '/window/a' + n, target: '_blank'});
  const form = Object.assign(document.createElement('form'), {action: '/window/f' + n, target: '_blank'});
  document.body.append(link, form);
  window.open('/window/w' + n);
  window.open('/window/n' + n, '_blank', 'noopener');
  link.click();
  form.submit();
}
</script>"""


async def test_a_page_that_opens_60_windows_has_its_picture_and_loads_none_of_them(
    studio: Studio, web: Web
) -> None:  # S1
    for way in "wnaf":
        for number in range(60):
            web.page(f"/window/{way}{number}", "<p>a window")
    picture = await studio.shoot(Shot(url=web.page("/windows", WINDOWS), width=50, height=50, delay=1))
    assert Image.open(io.BytesIO(picture.data)).convert("RGB").getpixel((25, 25)) == (32, 160, 64)
    assert [path for path in web.asked if path.startswith("/window/")] == []


async def test_a_chromium_that_opens_windows_all_the_same_is_stopped_after_a_few(
    chromium: str, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S1
    if "headless-shell" not in chromium:
        pytest.skip("only the shell opens windows without a click")
    lets = tuple(one for one in chromium_module.ARGUMENTS if one != "--block-new-web-contents")
    assert len(lets) < len(chromium_module.ARGUMENTS)
    monkeypatch.setattr(chromium_module, "ARGUMENTS", lets)
    url = web.page("/fork", "<script>for (let n = 0; n < 60; n++) window.open('/fork')</script>")
    rules = Rules(allowed=frozenset({(web.host, web.port)}))
    async with Studio(chromium, rules, Limits(seconds=SECONDS, popups=5)) as lenient:
        assert await failure(lenient, url, width=100, height=100) is Code.PAGE_MISBEHAVES


async def test_prompts_for_devices_are_refused_without_a_word(studio: Studio, web: Web) -> None:  # S1
    body = """<body style='margin:0;background:#fff'><script>
    const refused = [
      new Promise((given, refused) => navigator.geolocation.getCurrentPosition(refused, given)),
      navigator.mediaDevices.getUserMedia({video: true}).then(() => { throw 1 }, () => 0),
    ];
    Promise.all(refused).then(() => document.body.style.background = '#20a040');
    </script>"""
    picture = await studio.shoot(Shot(url=web.page("/prompts", body), width=50, height=50, delay=1))
    assert Image.open(io.BytesIO(picture.data)).convert("RGB").getpixel((25, 25)) == (32, 160, 64)


async def test_downloads_are_refused(studio: Studio, web: Web) -> None:  # S1
    web.page(
        "/file",
        b"x" * 1000,
        kind="application/octet-stream",
        Content_Disposition="attachment; filename=x.exe",
    )
    at_once = web.page("/at-once", "<p>here<script>location.href = '/file'</script>")
    later = web.page(
        "/later", "<p>here<script>onload = () => setTimeout(() => location.href = '/file')</script>"
    )
    code, picture = await asyncio.gather(
        failure(studio, at_once), studio.shoot(Shot(url=later, width=50, height=50, delay=1))
    )
    assert code is Code.NOT_A_PAGE
    assert picture.status == 200


@pytest.mark.usefixtures("well")
async def test_an_image_of_a_billion_pixels_is_no_end_of_the_browser(studio: Studio, web: Web) -> None:  # S1
    web.page("/bomb.png", huge_png(30_000, 30_000), kind="image/png")
    url = web.page("/bomb", "<img src=/bomb.png width=100 height=100>")
    try:
        assert (await studio.shoot(Shot(url=url, width=100, height=100))).status == 200
    except ShotFailed as failed:
        if failed.code not in (Code.PAGE_TOO_LARGE, Code.NAVIGATION_TIMEOUT):
            raise


def huge_png(width: int, height: int) -> bytes:
    """A true PNG of one colour, small as a file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compressobj(9)
    row = bytes(1 + width // 8)
    data = b"".join(rows.compress(row) for _ in range(height)) + rows.flush()
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
