"""What may come in by `POST /api/upload`, and what may not: real processes, hostile senders."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from systems.converter.content import MAX_BYTES
from systems.converter.samples import article, plain
from tests.systems.converter.gateways import RunningGateway
from tests.systems.converter.hostile import FILES
from tests.systems.converter.sites import RunningSite
from tests.systems.converter.test_gateway import of_size

BOUNDARY = "xyz"
HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


@pytest.fixture(scope="module")
def shared(faulty_gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    folder = tmp_path_factory.mktemp("site")
    with RunningSite(folder, f"sqlite:///{folder / 'jobs.db'}", faulty_gateway) as running:
        yield running


@pytest.fixture
def site(shared: RunningSite) -> Iterator[RunningSite]:
    shared.http = shared.browser()
    yield shared
    assert shared.left_over(shared.uploads) == []
    shared.close_browsers()


def part(disposition: str, content: bytes) -> bytes:
    return (
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + content + b"\r\n"
    )


def form(pdf: bytes, filename: str = "a.pdf") -> bytes:
    return part(f'name="file"; filename="{filename}"', pdf) + f"--{BOUNDARY}--\r\n".encode()


def raw_head(site: RunningSite, length: int) -> bytes:
    lines = [
        "POST /api/upload HTTP/1.1",
        f"Host: {site.url.removeprefix('http://')}",
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def connect(site: RunningSite) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(site.url.rpartition(":")[2])), timeout=10)


# -- size ----------------------------------------------------------------------------------------------------------------
def test_exactly_50_mb_are_taken_in_little_memory(site: RunningSite) -> None:  # C1
    site.upload(plain(words="warm up"))
    before = site.peak_memory()
    pdf = of_size(MAX_BYTES)
    answer = site.upload(pdf)
    assert answer.status_code == 201
    assert site.peak_memory() - before <= 16_000_000
    assert site.until(answer.json()["id"])["size"] == MAX_BYTES
    assert (site.uploads / f"{answer.json()['id']}.pdf").stat().st_size == MAX_BYTES


def test_one_byte_more_is_refused(site: RunningSite) -> None:  # C1
    answer = site.upload(of_size(MAX_BYTES + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")


def test_what_announces_too_much_is_refused_before_it_is_sent(site: RunningSite) -> None:  # C1
    with connect(site) as connection:
        connection.sendall(raw_head(site, 10**12) + part('name="file"; filename="huge.pdf"', b"%PDF-1.7"))
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")  # and the rest was never sent


def test_what_announces_nothing_is_refused_where_the_limit_is(site: RunningSite) -> None:  # C1
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        yield part('name="file"; filename="endless.pdf"', b"%PDF-1.7\n" + b"x" * 2000)[:-2]
        while sent < 4 * MAX_BYTES:
            sent += 1_000_000
            yield b" " * 1_000_000

    answer = site.http.post("/api/upload", content=body(), headers=HEADERS)
    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
    assert sent < 2 * MAX_BYTES


def test_a_field_without_end_is_refused(site: RunningSite) -> None:
    body = part('name="mapping"', b"x" * 100_000) + form(plain())
    answer = site.http.post("/api/upload", content=body, headers=HEADERS)
    assert (answer.status_code, answer.json()["code"]) == (400, "NOT_PDF")


# -- content -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_gets_a_code_and_never_a_5xx(site: RunningSite, name: str) -> None:
    hostile = FILES[name]
    answer = site.upload(hostile.make(), "jats", name=f"{name}.pdf")
    if hostile.status in (400, 415):
        assert (answer.status_code, answer.json()["code"]) == (400, "NOT_PDF")
        assert site.job(answer.json()["job_id"])["state"] == "failed"
        return
    assert answer.status_code == 201
    job = site.until(answer.json()["id"], seconds=45)
    expected = ("complete", None) if hostile.status == 200 else ("failed", "GW_4XX")
    assert (job["state"], job["error_code"]) == expected
    assert job["attempt"] == 1
    assert "\n" not in job["message"]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\\\..\\\\boot.ini", "boot.ini"),
        ("/abs/olute.pdf", "olute.pdf"),
        ("..", ".."),
        ("", "unnamed.pdf"),
        ("<img src=x onerror=alert(1)>.pdf", "<img src=x onerror=alert(1)>.pdf"),
        ("x" * 3000 + ".pdf", "x" * 120),
        ("r\u202efdp.exe", "rfdp.exe"),
        ("nul\x00byte.pdf", "nulbyte.pdf"),
        ("a\nX-Evil: 1.pdf", "aX-Evil: 1.pdf"),
        ("a\r\nX-Evil: 1.pdf", '"a'),  # a line of the form's own, after a name without its end
        ("a.pdf\"; filename*=UTF-8''a%0D%0AX-Evil%3A%201.pdf; x=\"", "a.pdf"),
        ("Grüße 文件 🚢.pdf", "Grüße 文件 🚢.pdf"),
        ("'; DROP TABLE jobs; --.pdf", "'; DROP TABLE jobs; --.pdf"),
    ],
)
def test_a_name_is_shown_and_never_used_as_a_path(site: RunningSite, sent: str, shown: str) -> None:
    before = {path for path in site.folder.rglob("*") if path.suffix not in (".pdf", ".xml")}
    body = part('name="mapping"', b"text") + form(plain(words=f"named {sent!r}"[:60]), sent)
    answer = site.http.post("/api/upload", content=body, headers=HEADERS)
    assert answer.status_code == 201, answer.text
    job = site.until(answer.json()["id"])
    assert (job["state"], job["name"]) == ("complete", shown)
    assert [path.name for path in site.uploads.glob(f"{job['id']}*")] == [f"{job['id']}.pdf"]
    headers = site.http.get(job["download"]).headers
    assert headers["content-disposition"].isascii()
    assert "x-evil" not in headers
    after = {path for path in site.folder.rglob("*") if path.suffix not in (".pdf", ".xml")}
    assert after <= before | {site.uploads, site.results}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/pdf", plain()),
        ("multipart/form-data", form(plain())),
        ("multipart/form-data; boundary=other", form(plain())),
        (HEADERS["content-type"], b""),
        (HEADERS["content-type"], part('name="mapping"', b"text") + b"--xyz--\r\n"),
        (HEADERS["content-type"], form(plain())[:-9]),
        (HEADERS["content-type"], part('name="file"; filename="a.pdf"', plain()) + form(plain())),
        (HEADERS["content-type"], part('name="x"', b"") * 30 + form(plain())),
        (HEADERS["content-type"], b"\x00\xff" * 500),
    ],
    ids=["bare", "no-boundary", "other-boundary", "empty", "no-file", "no-end", "two-files", "many", "noise"],
)
def test_what_is_not_a_form_with_one_file_is_refused(site: RunningSite, kind: str, body: bytes) -> None:
    answer = site.http.post("/api/upload", content=body, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["code"]) == (400, "NOT_PDF")
    assert site.job(answer.json()["job_id"])["state"] == "failed"


def test_a_mapping_may_come_behind_the_file_or_not_at_all(site: RunningSite) -> None:
    file = part('name="file"; filename="a.pdf"', article())
    end = f"--{BOUNDARY}--\r\n".encode()
    for body, mapping in ((file + part('name="mapping"', b"alto") + end, "alto"), (file + end, "text")):
        answer = site.http.post("/api/upload", content=body, headers=HEADERS)
        assert (answer.status_code, answer.json()["mapping"]) == (201, mapping)


# -- connections -----------------------------------------------------------------------------------------------------
def test_a_connection_that_is_cut_leaves_no_file_and_no_job(site: RunningSite) -> None:
    files = set(site.uploads.iterdir())
    for _ in range(3):
        with connect(site) as connection:
            connection.sendall(
                raw_head(site, 3_000_000)
                + part('name="file"; filename="cut.pdf"', b"%PDF-1.7" + b"x" * 900_000)
            )
            _until_half_written(site, True)
        _until_half_written(site, False)
    assert set(site.uploads.iterdir()) == files
    assert site.upload(plain(words="after the cut")).status_code == 201


def _until_half_written(site: RunningSite, there: bool) -> None:
    until = time.monotonic() + 30
    while bool(site.left_over(site.uploads)) != there:
        assert time.monotonic() < until, "half a file was left" if not there else "the upload did not begin"
        time.sleep(0.01)


def test_two_hundred_uploads_at_once_are_neither_lost_nor_doubled(site: RunningSite) -> None:
    """One file comes a hundred times, fifty others twice: 51 jobs, whoever was first."""
    site.upload(plain(words="gives the cookie"))
    before = set(site.uploads.glob("*.pdf"))
    names = [
        *(f"crowd {nth}" for nth in range(50)),
        *["the same"] * 100,
        *(f"crowd {nth}" for nth in range(50)),
    ]
    pdfs = [plain(words=name) for name in names]
    cookies = dict(site.http.cookies)

    def send(pdf: bytes) -> httpx2.Response:
        return httpx2.post(
            f"{site.url}/api/upload",
            files={"file": ("c.pdf", pdf)},
            data={"mapping": "text"},
            cookies=cookies,
            timeout=50,
            verify=False,  # the certificates of the world take longer to read than all the rest
        )

    with ThreadPoolExecutor(200) as crowd:
        answers = list(crowd.map(send, pdfs))
    assert {answer.status_code for answer in answers} == {200, 201}
    ids = [answer.json()["id"] for answer in answers]
    assert sum(answer.status_code == 201 for answer in answers) == len(set(ids)) == 51
    assert (ids[:50], len(set(ids[50:150]))) == (ids[150:], 1)
    for job_id in set(ids):
        assert site.until(job_id, seconds=40)["state"] == "complete"
    assert {path.stem for path in set(site.uploads.glob("*.pdf")) - before} == set(ids)


# -- who ---------------------------------------------------------------------------------------------------------------
def test_a_session_is_a_signed_cookie_that_scripts_do_not_see(site: RunningSite) -> None:
    answer = site.http.get("/")
    [cookie] = answer.headers.get_list("set-cookie")
    assert "; HttpOnly; SameSite=Lax" in cookie
    assert "set-cookie" not in site.http.get("/").headers  # it is known now
    job_id = site.upload(plain(words="cookie")).json()["id"]
    name, value = next(iter(site.http.cookies.items()))
    for forged in (value[:-2] + ("AA" if value[-2] != "A" else "BB"), "a" * 22, "", "x" * 4000):
        answer = httpx2.get(f"{site.url}/api/jobs/{job_id}", cookies={name: forged}, verify=False)
        assert answer.status_code == 403
        assert "set-cookie" in answer.headers


def test_a_page_of_another_site_can_neither_upload_nor_retry(site: RunningSite) -> None:
    job_id = site.upload(plain(words="csrf"), "docx").json()["id"]
    site.until(job_id, "failed")
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        for path in (f"/api/jobs/{job_id}/retry", "/api/upload"):
            answer = site.http.post(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    own = {"origin": site.url, "sec-fetch-site": "same-origin"}
    assert site.http.post(f"/api/jobs/{job_id}/retry", headers=own).status_code == 200
    site.until(job_id, "failed")


def test_uploads_of_a_session_are_counted(faulty_gateway: RunningGateway, tmp_path: Path) -> None:  # C1
    """One session's flood is no other's business, and to leave the cookie behind does not help."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with RunningSite(tmp_path, url, faulty_gateway, workers=0, UPLOAD_RATE="5/h") as site:
        ann, bob = site.browser(), site.browser()
        for browser in (ann, bob):
            browser.get("/")
        taken = [site.upload(plain(words=f"ann {nth}"), by=ann) for nth in range(8)]
        assert [answer.status_code for answer in taken] == [201] * 5 + [429] * 3
        assert int(taken[-1].headers["retry-after"]) > 60
        assert "too many uploads" in taken[-1].json()["detail"]
        assert len(ann.get("/api/jobs").json()["jobs"]) == 5  # a flood leaves nothing behind
        assert site.upload(plain(words="bob"), by=bob).status_code == 201
        nobody = [site.upload(plain(words=f"nobody {nth}"), by=site.browser()) for nth in range(8)]
        assert [answer.status_code for answer in nobody] == [201] * 5 + [429] * 3


def test_a_key_of_holdfast_is_an_owner_too(site: RunningSite) -> None:
    app = ("--app", "systems.converter.app:app", "--json")

    def with_key(*words: str) -> httpx2.Client:
        made = json.loads(site.command("keys", "create", *words, *app))
        ids.append(made["id"])
        browser = site.browser()
        browser.headers["authorization"] = f"Bearer {made['secret']}"
        return browser

    ids: list[str] = []

    ann, boss = with_key("--role", "owner", "--owner", "ann"), with_key("--role", "operator")
    viewer = with_key("--role", "viewer")
    job_id = site.upload(plain(words="by key"), by=ann).json()["id"]
    assert ann.get(f"/api/jobs/{job_id}").status_code == 200
    assert "set-cookie" not in ann.get("/api/jobs").headers
    assert site.http.get(f"/api/jobs/{job_id}").status_code == 403
    assert boss.get(f"/api/jobs/{job_id}").status_code == viewer.get(f"/api/jobs/{job_id}").status_code == 200
    assert site.upload(plain(), by=viewer).status_code == 403
    site.command("keys", "revoke", ids[0], *app)
    assert ann.get(f"/api/jobs/{job_id}").status_code == 401
    wrong = {"authorization": "Bearer hf_wrong"}
    assert site.http.get("/api/jobs", headers=wrong).status_code == 401


def test_a_file_is_removed_by_its_owner_once_it_has_ended(site: RunningSite) -> None:  # C7 C9
    job = site.converted(plain(words="to be removed"))
    path, mine, other = f"/api/jobs/{job['id']}", site.http, site.browser()
    assert job["can_remove"]
    assert other.delete(path).status_code == 403
    assert mine.delete(path, headers={"origin": "https://evil.example"}).status_code == 403
    assert mine.delete(path).status_code == 204
    for method, where in (
        ("GET", path),
        ("GET", f"{path}/download"),
        ("POST", f"{path}/retry"),
        ("DELETE", path),
    ):
        assert mine.request(method, where).status_code == 404, where
    assert job["id"] not in [one["id"] for one in mine.get("/api/jobs").json()["jobs"]]
    again = site.upload(plain(words="to be removed"))
    assert (again.status_code, again.json()["duplicate"]) == (201, False)


def test_a_file_in_progress_is_not_removed(site: RunningSite) -> None:  # C7
    site.gateway.fault(hang=True)
    job_id = site.upload(plain(words="busy")).json()["id"]
    answer = site.http.delete(f"/api/jobs/{job_id}")
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_READY")
    assert "cancel it first" in answer.json()["detail"]
    site.cancel([job_id])
    site.gateway.http.delete("/faults")
    assert site.http.delete(f"/api/jobs/{job_id}").status_code == 204


def test_everything_leaves_with_the_headers_that_keep_it_harmless(site: RunningSite) -> None:
    job = site.converted(plain(words="headers"))
    for path in ("/", "/queue.js", "/api/jobs", "/nothing", job["download"]):
        answer = site.http.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


def test_holdfasts_own_api_is_there_for_those_with_a_key(site: RunningSite) -> None:
    assert site.http.get("/holdfast/api/v1/jobs").status_code == 401


def test_below_the_watermark_no_upload_is_taken(faulty_gateway: RunningGateway, tmp_path: Path) -> None:  # C1
    free_mb = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize // 1_000_000
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    wanted = str(free_mb * 2 + 1)
    with RunningSite(tmp_path, url, faulty_gateway, workers=0, FREE_SPACE_MIN_MB=wanted) as site:
        answer = site.upload(plain())
        assert (answer.status_code, answer.json()["code"]) == (500, "IO_ERROR")
        assert site.job(answer.json()["job_id"])["state"] == "failed"
        assert list(site.uploads.iterdir()) == []


def test_a_server_that_is_killed_forgets_nobody(faulty_gateway: RunningGateway, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with RunningSite(tmp_path, url, faulty_gateway, workers=0) as site:
        mine = site.http
        job_id = site.upload(plain(words="before the crash")).json()["id"]
        site.kill_web()
        site.start_web()
        assert mine.get(f"/api/jobs/{job_id}").json()["state"] == "queued"
        site.start_worker()
        site.http = mine
        assert site.until(job_id)["state"] == "complete"
