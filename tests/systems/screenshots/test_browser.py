"""Pictures by a real Chromium: what is on them, what they may not be, and what happens when the browser is lost."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pikepdf
import pytest
from PIL import Image, ImageChops

from devservices.postgres import NAMESPACE
from holdfast import Fatal, Retryable, UsageError
from systems.screenshots.browser import Browser, Limits, Studio
from systems.screenshots.browser import browser as browser_module
from systems.screenshots.browser import visit as visit_module
from systems.screenshots.browser.processes import family
from systems.screenshots.codes import CODES, Code
from systems.screenshots.failures import ShotFailed, rule
from systems.screenshots.guard import Rules
from systems.screenshots.samples import PAGES, SampleServer
from systems.screenshots.shot import Picture, Shot
from tests.systems.screenshots.places import Web, alive, hang, until

RED, GREEN, BLUE, YELLOW, WHITE = (208, 32, 32), (32, 160, 64), (32, 64, 192), (240, 208, 32), (255, 255, 255)
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def samples() -> Iterator[SampleServer]:
    with SampleServer() as serving:
        yield serving


@pytest.fixture(scope="module")
async def studio(chromium: str, web: Web, samples: SampleServer) -> AsyncIterator[Studio]:
    rules = Rules(allowed=frozenset({(web.host, web.port), ("127.0.0.1", samples.port)}))
    limits = Limits(seconds=10, selector_seconds=0.3, page_bytes=400 << 20)
    async with Studio(chromium, rules, limits) as running:
        yield running


@pytest.fixture(scope="module")
async def browser(chromium: str, web: Web) -> AsyncIterator[Browser]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port},localhost:{web.port}")
        patch.setenv("DATABASE_PASSWORD", "canary-7f31")
        async with Browser(Limits(concurrency=2, seconds=10)) as running:
            yield running


def opened(picture: Picture) -> Image.Image:
    return Image.open(io.BytesIO(picture.data)).convert("RGB")


def close_to(found: Any, wanted: tuple[int, int, int], tolerance: int = 6) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(found, wanted, strict=True))


async def asked(web: Web, path: str, times: int) -> None:
    assert await asyncio.to_thread(until, lambda: web.asked.count(path) >= times, 10)


def words_of(pid: int) -> list[str]:
    """Its command line; none when it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return re.split("[\0 ]", Path(f"/proc/{pid}/cmdline").read_text())
    return []


def renderers(pid: int) -> int:
    return sum("--type=renderer" in words_of(one) for one in family(pid))


async def is_well(studio: Studio, url: str) -> bool:
    """Whether it still takes pictures. On a busy machine the first may take longer than this test lets a page take."""
    for _ in range(5):
        with suppress(ShotFailed):
            return (await studio.shoot(Shot(url=url))).status == 200
    return False


async def failure(studio: Studio | Browser, shot: Shot) -> Code:
    with pytest.raises(ShotFailed) as told:
        await studio.shoot(shot)
    line = told.value.line(final=True)
    assert line
    assert "\n" not in line
    return told.value.code


@pytest.mark.parametrize("form", ["png", "jpeg", "webp"])
async def test_a_picture_shows_the_page_within_tolerance(
    studio: Studio, samples: SampleServer, form: Any
) -> None:  # S1
    picture = await studio.shoot(
        Shot(
            url=f"{samples.url}/colours",
            width=500,
            height=400,
            format=form,
            quality=None if form == "png" else 90,
        )
    )
    image = opened(picture)
    assert Image.open(io.BytesIO(picture.data)).format == form.upper()
    assert image.size == (picture.width, picture.height) == (500, 400)
    assert picture.status == 200
    assert picture.media_type == f"image/{form}"
    reference = Image.new("RGB", (500, 400), WHITE)
    for left, top, colour in ((0, 0, RED), (200, 0, GREEN), (0, 150, BLUE), (200, 150, YELLOW)):
        reference.paste(colour, (left, top, left + 200, top + 150))
    red, green, blue = ImageChops.difference(image, reference).split()
    far = sum(ImageChops.lighter(ImageChops.lighter(red, green), blue).histogram()[7:])
    assert far <= (0 if form == "png" else 500 * 400 * 0.03)  # lossy formats blur the borders


async def test_a_full_page_goes_down_to_its_end(studio: Studio, samples: SampleServer) -> None:  # S1
    picture = await studio.shoot(Shot(url=f"{samples.url}/long", width=300, height=200, full_page=True))
    image = opened(picture)
    assert image.size == (300, 3000)
    assert [close_to(image.getpixel((150, y)), c) for y, c in ((10, RED), (1500, GREEN), (2990, BLUE))] == [
        True
    ] * 3


async def test_a_selector_is_the_picture(studio: Studio, samples: SampleServer) -> None:  # S1
    picture = await studio.shoot(
        Shot(url=f"{samples.url}/colours", width=500, height=400, selector="#yellow")
    )
    image = opened(picture)
    assert image.size == (200, 150)
    assert image.getcolors() == [(200 * 150, YELLOW)]


async def test_a_pdf_has_sheets_of_the_asked_size(studio: Studio, samples: SampleServer) -> None:  # S1
    whole = Shot(url=f"{samples.url}/long", width=800, height=1000, format="pdf", full_page=True)
    first = Shot(url=f"{samples.url}/long", width=800, height=1000, format="pdf")
    sheets: list[int] = []
    box: list[float] = []
    for shot in (whole, first):
        picture = await studio.shoot(shot)
        assert picture.media_type == "application/pdf"
        with pikepdf.open(io.BytesIO(picture.data)) as document:
            sheets.append(len(document.pages))
            box = [float(side) for side in document.pages[0].mediabox]
    assert sheets == [3, 1]
    assert box == pytest.approx([0, 0, 600, 750], abs=1)  # in points: three quarters of a pixel


async def test_every_sample_page_gives_a_picture(studio: Studio, samples: SampleServer) -> None:
    shots = [Shot(url=samples.url + path, width=640, height=480) for path in PAGES]
    pictures = await asyncio.gather(*map(studio.shoot, shots))
    for picture in pictures:
        assert picture.status == 200
        assert opened(picture).getcolors() != [(640 * 480, WHITE)]


async def test_a_delay_is_waited_for(studio: Studio, web: Web) -> None:  # S1
    url = web.page(
        "/later",
        "<body style='margin:0;background:#fff'><script>setTimeout(() => document.body.style.background='#20a040', 500)</script>",
    )
    late = await studio.shoot(Shot(url=url, width=50, height=50, delay=1))
    assert opened(late).getpixel((25, 25)) == GREEN


async def test_the_status_of_the_page_is_told_and_a_404_is_a_page(studio: Studio, web: Web) -> None:  # S1
    web.redirect("/moved", "/nowhere")
    picture = await studio.shoot(Shot(url=f"{web.url}/moved", width=50, height=50))
    assert picture.status == 404
    assert picture.url == f"{web.url}/nowhere"


@pytest.mark.parametrize(
    ("asked", "code", "names"),
    [
        ({"width": 15}, Code.BAD_SIZE, "from 16 to 3840"),
        ({"width": 100_000}, Code.BAD_SIZE, "from 16 to 3840"),
        ({"height": 4321}, Code.BAD_SIZE, "from 16 to 4320"),
        ({"height": True}, Code.BAD_SIZE, "from 16 to 4320"),
        ({"format": "gif"}, Code.BAD_FORMAT, "png, jpeg, webp, pdf"),
        ({"quality": 50}, Code.BAD_QUALITY, "from 1 to 100"),
        ({"format": "jpeg", "quality": 101}, Code.BAD_QUALITY, "from 1 to 100"),
        ({"delay": -1}, Code.BAD_DELAY, "from 0 to 10 seconds"),
        ({"delay": float("nan")}, Code.BAD_DELAY, "from 0 to 10 seconds"),
        ({"selector": ""}, Code.BAD_SELECTOR, "1 to 500 characters"),
        ({"selector": "a", "format": "pdf"}, Code.BAD_SELECTOR, "not for a pdf"),
    ],
)
def test_what_cannot_be_taken_is_refused_naming_what_can(asked: Any, code: Code, names: str) -> None:  # S1
    with pytest.raises(ShotFailed, match=names) as told:
        Shot(url="http://pages.example/", **asked)
    assert told.value.code is code
    assert CODES[code].status == 422
    assert isinstance(rule(told.value), Fatal)


async def test_a_selector_that_nothing_matches_is_told(studio: Studio, samples: SampleServer) -> None:  # S1
    selectors = ("#missing", "title", "a[", "a >> b")
    shots = [Shot(url=f"{samples.url}/colours", selector=selector) for selector in selectors]
    assert set(await asyncio.gather(*(failure(studio, shot) for shot in shots))) == {Code.SELECTOR_NOT_FOUND}


async def test_a_server_that_does_not_answer_is_told_as_such(studio: Studio, web: Web) -> None:  # S1
    def cut(handler: Any) -> None:
        handler.close_connection = True

    assert await failure(studio, Shot(url=web.answer("/cut", cut))) is Code.CONNECTION_FAILED
    assert await failure(studio, Shot(url="http://nosuch.invalid/")) is Code.CONNECTION_FAILED
    assert CODES[Code.CONNECTION_FAILED].again


async def test_a_page_that_goes_on_to_where_nobody_answers_is_told_as_such(studio: Studio, web: Web) -> None:
    url = web.page("/on", "<script>location.href = 'http://nosuch.invalid/'</script>")
    assert await failure(studio, Shot(url=url, delay=1)) is Code.CONNECTION_FAILED


async def test_a_certificate_that_cannot_be_trusted_is_told(chromium: str, tmp_path: Path) -> None:  # S1
    made = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    files = ["-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/cert", "-subj", "/CN=pages.example"]
    subprocess.run(["openssl", *made, *files], check=True, capture_output=True)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(f"{tmp_path}/cert", f"{tmp_path}/key")
    server = await asyncio.start_server(lambda *streams: streams[1].close(), "127.0.0.1", 0, ssl=theirs)
    port = server.sockets[0].getsockname()[1]
    async with server, Studio(chromium, Rules(allowed=frozenset({("127.0.0.1", port)})), Limits()) as studio:
        assert await failure(studio, Shot(url=f"https://127.0.0.1:{port}/")) is Code.BAD_CERTIFICATE


async def test_a_download_is_not_a_page(studio: Studio, web: Web) -> None:  # S1
    url = web.page("/file", b"x" * 1000, kind="application/octet-stream", Content_Disposition="attachment")
    assert await failure(studio, Shot(url=url)) is Code.NOT_A_PAGE


async def test_a_page_too_large_is_refused_and_told_how_large(studio: Studio, web: Web) -> None:  # S1
    url = web.page("/tall", "<body style='margin:0'><div style='height:100000px'>")
    with pytest.raises(ShotFailed, match="1,280 × 100,000 pixels; at most 16,384 a side") as told:
        await studio.shoot(Shot(url=url, full_page=True))
    assert told.value.code is Code.PAGE_TOO_LARGE


def hung_pages(web: Web) -> list[str]:
    web.answer("/hang", hang)
    web.page("/busy", "<script>while (true) {}</script>")
    web.page(
        "/busylater", "<p>here<script>onload = () => setTimeout(() => { while (true) {} }, 100)</script>"
    )
    web.page("/waits", "<p>here<img src=/hang>")
    web.page("/fine", "fine")
    return [web.url + path for path in ("/hang", "/busy", "/busylater", "/waits")]


@pytest.mark.nightly
async def test_a_hung_page_holds_its_place_no_longer_than_its_limit_and_five_seconds(
    chromium: str, web: Web
) -> None:  # S1, E41
    async with Studio(
        chromium, Rules(allowed=frozenset({(web.host, web.port)})), Limits(seconds=3)
    ) as studio:

        async def timed(url: str) -> float:
            began = time.monotonic()
            await failure(studio, Shot(url=url, delay=0.5))
            return time.monotonic() - began

        took = await asyncio.gather(*map(timed, hung_pages(web)))
        assert all(3 <= seconds <= 3 + 5 for seconds in took)


async def test_a_hung_page_is_ended_at_its_limit_and_gives_its_place_back(
    chromium: str, web: Web
) -> None:  # S1, E41
    limits = Limits(seconds=3)
    async with Studio(chromium, Rules(allowed=frozenset({(web.host, web.port)})), limits) as studio:
        [pid] = studio.pids
        ended = await asyncio.gather(*(failure(studio, Shot(url=url, delay=0.5)) for url in hung_pages(web)))
        assert set(ended) == {Code.NAVIGATION_TIMEOUT}
        assert isinstance(rule(ShotFailed(Code.NAVIGATION_TIMEOUT)), Retryable)
        assert until(lambda: renderers(pid) <= 2)  # nor does a page that hung go on by itself
        assert await is_well(studio, f"{web.url}/fine")


async def test_a_killed_chromium_fails_all_that_sat_in_it_and_is_replaced(
    studio: Studio, web: Web
) -> None:  # S1
    web.answer("/hang", hang)
    url = web.page("/waiting", "<img src=/hang>")
    seen = web.asked.count("/hang")
    sitting = [asyncio.create_task(studio.shoot(Shot(url=url))) for _ in range(2)]
    await asked(web, "/hang", seen + 2)
    [pid] = studio.pids
    os.kill(pid, signal.SIGKILL)
    for ended in await asyncio.gather(*sitting, return_exceptions=True):
        assert isinstance(ended, ShotFailed)
        assert (
            ended.code is Code.BROWSER_CRASHED
        )  # at the end of their own time it would be NAVIGATION_TIMEOUT
        assert isinstance(rule(ended), Retryable)
    assert (await studio.shoot(Shot(url=web.page("/fine", "fine")))).status == 200
    assert studio.pids != [pid]


async def test_a_page_that_takes_too_much_memory_is_ended_alone(
    studio: Studio, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S1, E41
    monkeypatch.setattr(
        visit_module, "_CLOSE_SECONDS", 10.0
    )  # nor is the browser because the machine is busy
    greedy = (
        "<script>const kept = []; setInterval(() => kept.push(new Uint8Array(50e6).fill(1)), 10)</script>"
    )
    before = studio.pids
    ended, beside = await asyncio.gather(
        studio.shoot(Shot(url=web.page("/greedy", greedy), delay=9)),
        studio.shoot(Shot(url=web.page("/modest", "modest"), delay=2)),
        return_exceptions=True,
    )
    assert isinstance(ended, ShotFailed)
    assert ended.code is Code.PAGE_TOO_LARGE
    assert isinstance(beside, Picture)
    assert studio.pids == before


async def test_chromium_is_replaced_after_its_number_of_jobs(
    chromium: str, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S1, E41
    monkeypatch.setattr(visit_module, "_CLOSE_SECONDS", 10.0)  # and not because the machine is busy
    url = web.page("/fine", "fine")
    rules = Rules(allowed=frozenset({(web.host, web.port)}))
    async with Studio(chromium, rules, Limits(jobs=2)) as studio:
        seen = []
        for _ in range(3):
            seen.append(studio.pids)
            await studio.shoot(Shot(url=url, width=50, height=50))
        after = studio.pids
        assert seen[0] == seen[1]
        assert set(after).isdisjoint(seen[0])


async def test_the_browser_of_root_has_a_network_of_its_own_with_nothing_in_it(
    browser: Browser, web: Web
) -> None:  # S1
    leaving = "from systems.screenshots.browser.isolation import leave_network; raise SystemExit(leave_network() is None)"
    if subprocess.run([sys.executable, "-c", leaving], cwd=ROOT).returncode != 0:
        pytest.skip("this machine does not let its root make networks")
    web.page("/fine", "fine")
    for host in (web.host, "localhost"):  # the guard in it finds and reaches what is outside
        assert (await browser.shoot(Shot(url=f"http://{host}:{web.port}/fine"))).status == 200
    assert browser.pid is not None
    here = os.readlink("/proc/self/ns/net")
    below = family(browser.pid)
    assert len(below) > 3
    networks = set()
    for pid in below:
        with suppress(FileNotFoundError):  # some of its processes end by themselves
            networks.add(os.readlink(f"/proc/{pid}/ns/net"))
    assert len(networks) == 1
    assert here not in networks
    devices = Path(f"/proc/{browser.pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]


async def test_the_browser_does_not_know_the_secrets_of_its_owner(browser: Browser) -> None:  # S1
    assert browser.pid is not None
    for pid in family(browser.pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            assert b"canary-7f31" not in Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_slow_name_server_takes_its_time_from_the_page(chromium: str) -> None:  # E41
    async def slow(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async with Studio(chromium, Rules(), Limits(seconds=0.5), resolve=slow) as studio:
        async with asyncio.timeout(60):  # the name server never answers
            assert await failure(studio, Shot(url="http://slow.example/")) is Code.NAVIGATION_TIMEOUT


async def test_a_browser_whose_process_is_killed_fails_its_jobs_and_is_replaced(
    browser: Browser, web: Web
) -> None:  # S1, E41
    web.answer("/hang", hang)
    fine = Shot(url=web.page("/fine", "fine"), width=50, height=50)
    assert opened(await browser.shoot(fine)).size == (50, 50)
    assert await failure(browser, Shot(url="http://10.0.0.1/")) is Code.TARGET_NOT_ALLOWED
    first = browser.pid
    assert first is not None
    below = family(first)
    known = dict(
        pair.split("=", 1) for pair in Path(f"/proc/{first}/environ").read_text().split("\0") if pair
    )
    seen = web.asked.count("/hang")
    sitting = asyncio.create_task(browser.shoot(Shot(url=web.page("/waiting", "<img src=/hang>"))))
    await asked(web, "/hang", seen + 1)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ShotFailed) as told:
        await sitting
    assert told.value.code is Code.BROWSER_CRASHED
    assert (await browser.shoot(fine)).status == 200
    assert browser.pid != first
    assert until(lambda: not any(map(alive, below)))
    assert not Path(known["TMPDIR"]).exists()


async def test_jobs_that_are_given_up_are_ended_and_free_their_places(
    browser: Browser, web: Web
) -> None:  # E41
    ended: list[str] = []

    def hang_and_tell(handler: Any) -> None:
        hang(handler)
        ended.append(handler.path)

    web.answer("/until-ended", hang_and_tell)
    waiting = Shot(url=web.page("/waiting", "<img src=/until-ended>"))
    given_up = [asyncio.create_task(browser.shoot(waiting)) for _ in range(browser.limits.concurrency)]
    await asked(web, "/until-ended", len(given_up))
    for one in given_up:
        one.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    # Long before their limit would have ended them.
    assert await asyncio.to_thread(until, lambda: len(ended) == len(given_up), browser.limits.seconds / 2)
    assert (await browser.shoot(Shot(url=web.page("/fine", "fine"), width=50, height=50))).status == 200


async def test_a_child_that_answers_nothing_is_replaced_after_its_limit_and_a_grace(
    browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S1, E41
    fine = Shot(url=web.page("/fine", "fine"), width=50, height=50)
    first = browser.pid
    assert first is not None
    assert 0 < browser_module._GRACE_SECONDS < 5
    with monkeypatch.context() as patch:
        patch.setattr(
            browser_module, "_GRACE_SECONDS", 1.0 - browser.limits.seconds
        )  # one second in all, for the test
        os.kill(first, signal.SIGSTOP)
        async with asyncio.timeout(60):
            assert await failure(browser, fine) is Code.NAVIGATION_TIMEOUT
    assert (await browser.shoot(fine)).status == 200
    assert browser.pid != first
    assert until(lambda: not alive(first))


def test_for_everybody_but_root_the_sandbox_of_chromium_is_on(chromium: str, web: Web) -> None:  # S1
    ordinary = NAMESPACE if os.geteuid() == 0 else ()
    if subprocess.run([*ordinary, "true"]).returncode != 0:
        pytest.skip("this machine does not let its root become an ordinary user")
    web.page("/fine", "fine")
    web.answer("/hang", hang)
    web.page("/waiting", "<img src=/hang>")
    shooting = f"""
import asyncio
from systems.screenshots.browser import Browser
from systems.screenshots.shot import Shot
async def shoot():
    async with Browser() as browser:
        print((await browser.shoot(Shot(url="{web.url}/fine"))).status, flush=True)
        await browser.shoot(Shot(url="{web.url}/waiting"))
asyncio.run(shoot())
"""
    seen = web.asked.count("/hang")
    with subprocess.Popen(
        [*ordinary, sys.executable, "-c", shooting],
        cwd=ROOT,
        env=os.environ | {"SCREENSHOTS_ALLOW": f"{web.host}:{web.port}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "200\n"
            assert until(lambda: web.asked.count("/hang") > seen, 10)
            below = family(process.pid)
            drawing = [pid for pid in below if "--type=renderer" in words_of(pid)]
            assert drawing
            for pid in drawing:
                facts = dict(
                    line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                )
                assert facts["Seccomp"] == "2"  # what it may ask of the kernel is filtered
                assert len(facts["NSpid"].split()) > 1  # and it sees none of our processes
            assert not any("--no-sandbox" in words_of(pid) for pid in below)
        finally:
            process.kill()
    assert until(lambda: not any(map(alive, below)), 10)


def test_a_killed_owner_leaves_no_browser_behind(chromium: str) -> None:  # E41
    folder = tempfile.mkdtemp()
    environment = os.environ | {"TMPDIR": folder}
    owning = """
import asyncio
from systems.screenshots.browser import Browser
async def own():
    async with Browser():
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(own())
"""
    with subprocess.Popen(
        [sys.executable, "-c", owning], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        below = family(owner.pid)
        assert len(below) > 3
        owner.kill()
    assert until(lambda: not any(map(alive, below)), 10)
    os.rmdir(folder)  # nor what Chromium had put aside


async def test_without_a_chromium_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCREENSHOTS_CHROMIUM", "no-such-chromium")
    with pytest.raises(UsageError, match=r"apt-get install chromium.*SCREENSHOTS_CHROMIUM"):
        async with Browser():
            pass
