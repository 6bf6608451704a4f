"""Attacks on every endpoint (faults §5), generated from the route table and from classes of bad input, so that a new route or
a new class is tested by being there. What is refused stores nothing, and costs less than 100 ms of this machine (nightly)."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import time
import unicodedata
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import pytest

from holdfast.engine.access import Role
from holdfast.errors import PayloadError
from holdfast.server import rate_limits, strict_json
from holdfast.server.problems import CODES, MEDIA_TYPE, Problem
from holdfast.server.routes import document
from holdfast.wiring import SystemClock
from tests.server.test_ownership import BODIES, HOUSE, ROUTES
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
WITH_BODY = {name: route for name, route in ROUTES.items() if route.body_field is not None}
SIGNED = "POST /api/v1/inbound/{webhook_id}"
REFUSED_WITHIN = 0.1  #: of this process's own time, so that what else the machine does is not counted


def filled(path: str) -> str:
    """A path of the table with names that may be."""
    return re.sub(r"\{[a-z_]+(:path)?\}", "019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42", path)


def assert_refused(answer: Any, *statuses: int) -> None:
    told = answer.json()
    assert answer.status_code in statuses, answer.text[:300]
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert CODES[told["code"]].status == answer.status_code
    assert "\n" not in told["detail"]


# -- every route --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", sorted({route.path_format for route in ROUTES.values()}))
async def test_a_method_that_a_path_does_not_take_is_told_those_that_it_does(path: str) -> None:  # E66
    told = document()["paths"][path]
    taken = {method.upper() for method in told}
    async with HOUSE.client(headers=await HOUSE.as_(Role.ADMIN)) as client:
        for method in {"DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "BREW"} - taken:
            answer = await client.request(method, filled(path))
            if path.endswith("/webhooks/inbound") and method == "DELETE":
                assert_refused(answer, 404)  # as of any webhook that is not there
                continue
            assert_refused(answer, 405)
            assert set(answer.headers["allow"].split(", ")) == taken


@pytest.mark.parametrize("name", WITH_BODY)
async def test_a_field_that_nobody_knows_is_refused_by_every_route(name: str) -> None:  # E66
    route = WITH_BODY[name]
    async with HOUSE.client(headers=await HOUSE.as_(Role.ADMIN)) as client:
        for field in ("nonsense", "is_admin", "state", "token", "__proto__", "", "a\nb", "\N{SNOWMAN}"):
            body = BODIES.get(route.name, {}) | {field: 1}
            answer = await client.request(min(route.methods or ()), filled(route.path), json=body)
            assert_refused(answer, 422)


@pytest.mark.parametrize("name", WITH_BODY)
async def test_a_body_that_is_no_json_or_no_object_is_refused_by_every_route(name: str) -> None:  # E66
    route = WITH_BODY[name]
    bad = [
        b"{",
        b"[]",
        b'"x"',
        b"5",
        b"true",
        b'{"a":1,"a":1}',
        b"\xff",
        b"[" * 50_000,
        b'{"a": NaN}',
        b"{}{}",
    ]
    async with HOUSE.client(headers=JSON | await HOUSE.as_(Role.ADMIN)) as client:
        for body in bad:
            answer = await client.request(min(route.methods or ()), filled(route.path), content=body)
            assert_refused(answer, 400, 422)


@pytest.mark.parametrize("name", ROUTES)
async def test_a_query_that_a_route_does_not_know_is_refused(name: str) -> None:  # E66
    route = ROUTES[name]
    async with HOUSE.client(headers=await HOUSE.as_(Role.ADMIN)) as client:
        method = min(route.methods or ())
        for query in ("nonsense=1", "limit[$gt]=1", "a%00b=1"):
            assert_refused(await client.request(method, f"{filled(route.path)}?{query}"), 422)


@pytest.mark.parametrize("name", sorted(name for name in ROUTES if "{" in name and name != SIGNED))
async def test_strange_names_in_a_path_are_nothing_that_is_there(name: str) -> None:  # E66
    route = ROUTES[name]
    strange = (
        "%00",
        "%0d%0aX-A:1",
        "..%2f..%2fetc",
        "%ff%fe",
        "%F0%9F%92%A9",
        "'%20OR%201=1--",
        "x" * 5000,
        "%2e%2e",
    )
    async with HOUSE.client(headers=JSON | await HOUSE.as_(Role.ADMIN)) as client:
        for text in strange:
            path = re.sub(r"\{[a-z_]+(:path)?\}", text.replace("\\", "\\\\"), route.path)
            body = BODIES.get(route.name)
            answer = await client.request(min(route.methods or ()), path, json=body)
            assert "x-a" not in answer.headers
            if route.name == "get_owner" and answer.status_code == 200:
                continue  # any name may be an owner's
            assert_refused(answer, 404, 405, 422)


# -- ids ----------------------------------------------------------------------------------------------------------------
async def test_an_id_is_one_text_and_those_of_nobody_are_answered_alike() -> None:  # E66
    job_id = await HOUSE.enqueue("alice")
    spelled = [
        job_id.upper(),
        job_id.replace("-", ""),
        f"{{{job_id}}}",
        f"urn:uuid:{job_id}",
        f" {job_id}",
        f"{job_id}%20",
        str(UUID(job_id).int),
        job_id.replace("-", "\N{HYPHEN}"),
        job_id.replace("0", "\N{FULLWIDTH DIGIT ZERO}"),
    ]
    guessed = [str(UUID(int=UUID(job_id).int + step)) for step in (-2, -1, 1, 2)]
    told = set()
    async with HOUSE.client(headers=await HOUSE.as_(Role.OWNER, "alice")) as client:
        assert (await client.get(f"{API}/jobs/{job_id}")).status_code == 200
        for other in spelled + guessed:
            answer = await client.get(f"{API}/jobs/{other}")
            assert_refused(answer, 404)
            told.add(json.dumps(answer.json() | {"instance": None}))
    assert len(told) == 1


async def test_whoever_is_refused_is_on_record(caplog: pytest.LogCaptureFixture) -> None:  # E66
    job_id = await HOUSE.enqueue("alice")
    async with HOUSE.client(headers=await HOUSE.as_(Role.OWNER, "mallory")) as client:
        assert_refused(await client.post(f"{API}/jobs/{job_id}/cancel"), 403)
        assert_refused(await client.post(f"{API}/admin/retry-scheduler/pause"), 403)
        assert_refused(await client.get(f"{API}/jobs?owner=alice"), 403)
    lines = [record.getMessage() for record in caplog.records if "request.forbidden" in record.getMessage()]
    assert len(lines) == 3
    assert all("caller=key:owner-" in line for line in lines)


# -- JSON ---------------------------------------------------------------------------------------------------------------
GOOD_TEXTS = (
    '{"a":[1,-0.5e+7,"x\\n\\u00e4",true,false,null,{}]}',
    '[[],{"b":{"c":""}},12,"\\"\\\\"]',
    "-1.5E-3",
    '"text"',
)


def broken_texts() -> Iterator[str]:
    """Of texts that are JSON: every one that is cut short, or has one character too many or another in its place. Most are
    no JSON any more; the reader of the standard library says which."""
    for good in GOOD_TEXTS:
        for place in range(len(good)):
            yield good[:place]
            for odd in "{}[]\",:.-+eE019nftu\\/'#*\x00\t\x1f\x7f\u00a0\ufeff":
                yield good[:place] + odd + good[place:]
                yield good[:place] + odd + good[place + 1 :]


def broken_bytes() -> Iterator[bytes]:
    """What is no UTF-8, in a text, in a name and between."""
    ill = (
        b"\x80",
        b"\xc0\x80",
        b"\xc3",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88",
        b"\xff",
    )
    for bad in ill:
        yield from (b'{"a":"%b"}' % bad, b'{"%b":1}' % bad, b"[1,%b]" % bad, bad + b"{}", b"{}" + bad)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "utf-7"):
        yield '{"a":"\N{SNOWMAN}+-"}'.encode(encoding) if encoding != "utf-7" else b"+AHsAfQ-"


def _twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def reference(text: str) -> Any:
    """What the standard library reads, less what RFC 8259 does not have, names given twice and NUL."""
    value = json.loads(text, object_pairs_hook=_twice, parse_constant=_no_constant)
    written = json.dumps(value)
    if "\\u0000" in written.replace("\\\\", "") or re.search(r"Infinity|\\ud[89a-f]", written):
        raise ValueError("not for us")
    return value


def read_by(reader: Any, text: Any) -> Any:
    """What *reader* makes of it, in a list; None where it refuses."""
    try:
        return [reader(text)]
    except (ValueError, RecursionError, Problem):
        return None


def test_the_reader_of_json_refuses_what_it_must_and_nothing_else() -> None:  # E66
    texts = list(broken_texts())
    taken = 0
    for text in texts:
        expected = read_by(reference, text)
        assert read_by(strict_json.read, text.encode()) == expected, text
        taken += expected is not None
    assert 300 < taken < len(texts) / 3  # both kinds are among them
    for body in broken_bytes():
        assert read_by(strict_json.read, body) is None, body


#: One million bytes each, of what is cheap to send and dear to read.
HEAVY = {
    "objects": b'{"task":"convert","args":{"pdf":[' + b"{}," * 340_000 + b"{}]}}",
    "lists": b'{"task":"convert","args":{"pdf":[' + b"[]," * 340_000 + b"[]]}}",
    "names": b'{"task":"convert","args":{' + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}}",
    "names at the top": b"{" + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}",
    "the same name": b"{" + b",".join([b'"a":1'] * 160_000) + b"}",
    "backslashes": b'{"task":"' + b"\\\\" * 500_000 + b'"}',
    "backslashes and colons": b'{"task":"' + b"\\\\u003a:" * 125_000 + b'"}',
    "escapes": b'{"task":"' + b"\\u0000" * 170_000 + b'"}',
    "digits": b'{"priority":' + b"9" * 1_000_000 + b"}",
    "decimals": b'{"priority":0.' + b"9" * 1_000_000 + b"}",
    "blanks": b" " * 1_000_000,
    "deep": b"[" * 500_000 + b"]" * 500_000,
    "deep objects": b'{"a":' * 160_000 + b"1" + b"}" * 160_000,
    "a list of calls": b'{"jobs":[' + b'{"task":"x"},' * 70_000 + b"{}]}",
}


def path_for(name: str) -> str:
    return f"{API}/jobs/batch" if name == "a list of calls" else f"{API}/jobs"


@pytest.mark.parametrize("name", HEAVY)
async def test_a_heavy_body_is_refused(name: str) -> None:  # E66
    async with HOUSE.client(headers=JSON | await HOUSE.as_(Role.ADMIN)) as client:
        before = await HOUSE.app.jobs.counts()
        assert_refused(await client.post(path_for(name), content=HEAVY[name]), 400, 422)
        assert await HOUSE.app.jobs.counts() == before


@pytest.mark.nightly
@pytest.mark.parametrize("name", HEAVY)
async def test_a_heavy_body_is_refused_in_less_than_a_tenth_of_a_second(name: str) -> None:  # E66
    async with HOUSE.client(headers=JSON | await HOUSE.as_(Role.ADMIN)) as client:
        spent = [math.inf]
        while min(spent) >= REFUSED_WITHIN and len(spent) <= 20:  # a core that others share is slow at times
            began = time.process_time()
            await client.post(path_for(name), content=HEAVY[name])
            spent.append(time.process_time() - began)
    assert min(spent) < REFUSED_WITHIN


@pytest.mark.parametrize("part", [b"x" * 10_000, b"[" * 10_000])
async def test_ten_million_bytes_are_refused_unread(part: bytes) -> None:  # E66
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += len(part)
            yield part

    async with HOUSE.client(headers=JSON | await HOUSE.as_(Role.ADMIN)) as client:
        length = {"Content-Length": str(1000 * len(part))}
        assert_refused(await client.post(f"{API}/jobs", content=body(), headers=length), 413)
    assert read == 0


# -- texts --------------------------------------------------------------------------------------------------------------
def naughty() -> Iterator[str]:
    """Classes of texts that have broken something somewhere, each as it is, twice over and in the midst of plain words."""
    pieces = [
        *(
            "'",
            '"',
            "`",
            "\\",
            "--",
            ";",
            "%",
            "_",
            "/*",
            "$$",
            "$1",
            "?",
            ":name",
            "';DROP TABLE jobs;--",
            "0x27",
        ),
        *("{{7*7}}", "${7*7}", "<%=7%>", "#{7}", "{0.__class__}", "%(x)s", "%n%s", "{}", "{", "}"),
        *(
            "$(id)",
            "`id`",
            "|id",
            "&&id",
            "\n",
            "\r\n",
            "\t",
            "\x7f",
            "\x1b[2J",
            "\x08",
            "\x85",
            "\u2028",
            "\u2029",
        ),
        *("../" * 5, "..\\", "/etc/passwd", "file:///", "C:\\", "CON", "~", "//host", "\\\\host\\x"),
        *(
            "<script>alert(1)</script>",
            "<!--",
            "]]>",
            "&amp;",
            "&#0;",
            "javascript:0",
            "=1+1",
            "@x",
            "-1",
            "+1",
        ),
        *(
            "null",
            "None",
            "nil",
            "undefined",
            "NaN",
            "Infinity",
            "true",
            "0",
            "1e400",
            "-0",
            "9" * 400,
            "\\u0041",
        ),
        *(
            "\ufeff",
            "\u200b",
            "\u200d",
            "\u202e",
            "\u2066",
            "\u00ad",
            "\ufffd",
            "\uffff",
            "\U0010ffff",
            "\ufdd0",
        ),
        *(
            "\N{PILE OF POO}",
            "e\u0301",
            "\u1f468\u200d\u1f469",
            "a" + "\u0300" * 100,
            "\u0130\u0131\u017f",
            "\ufdfa",
        ),
        *("\u0000".encode("unicode_escape").decode(), "\u3000", "\u2000", "\u0e33", "\ufb03", "ǅ", "ẞ"),
    ]
    for piece in pieces:
        yield from (piece, piece * 2, f"before {piece} after")
    chance = random.Random(3)
    by_kind: dict[str, list[str]] = {}
    for number in range(1, 0x110000, 7):
        char = chr(number)
        by_kind.setdefault(unicodedata.category(char), []).append(char)
    for kind, chars in sorted(by_kind.items()):
        if kind != "Cs":
            yield from ("".join(chance.choices(chars, k=size)) for size in (1, 2, 20))


@pytest.fixture
async def house(store_url: str) -> AsyncIterator[House]:
    app = new_app(store_url)

    @app.task
    async def take(value: Any) -> Any:
        return value

    async with app:
        yield new_house(app)


async def test_what_is_given_is_given_back_to_the_letter(house: House) -> None:  # E66
    texts = list(naughty())
    assert len(texts) > 300
    async with house.client(headers=await house.as_(Role.OWNER, "ann")) as client:
        body = {"jobs": [{"task": "note", "args": {"text": text}} for text in texts]}
        made = await client.post(f"{API}/jobs/batch", json=body)
        assert made.status_code == 201, made.text[:300]
        ids = [one["id"] for one in made.json()["jobs"]]
        page = await house.app.jobs.list(ids=ids, limit=len(ids))
        assert {row.id: row.payload["text"] for row in page.rows} == dict(zip(ids, texts, strict=True))
        for text in texts[::3]:
            words = {"tag": text, "key": text} if len(text) % 2 else {"error_code": text, "task": text}
            found = await client.get(f"{API}/jobs", params=words)
            assert found.status_code in (200, 422), (text, found.text[:300])
            if found.status_code == 200:
                assert found.json()["jobs"] == []
            answer = await client.post(
                f"{API}/jobs", json={"task": "note", "args": {"text": "x"}, "tags": [text]}
            )
            assert answer.status_code in (201, 422), (text, answer.text[:300])


@pytest.mark.parametrize("depth", [90, 98, 105, 300, 500, 900, 960, 990, 5000])
async def test_arguments_too_deep_to_be_read_again_are_refused_and_spoil_no_list(
    house: House, depth: int
) -> None:  # E66
    async with house.client(headers=JSON | await house.as_(Role.ADMIN)) as client:
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            deep = opening * depth + b"1" + closing * depth
            made = await client.post(f"{API}/jobs", content=b'{"task":"take","args":{"value":%b}}' % deep)
            assert made.status_code == (201 if depth < 100 else 400), made.text[:300]
            for path in ("jobs", *([f"jobs/{made.json()['id']}?include=args"] if depth < 100 else [])):
                assert (await client.get(f"{API}/{path}")).status_code == 200


@pytest.mark.parametrize("depth", [101, 500, 960, 5000])
async def test_so_are_those_of_a_call_in_python(house: House, depth: int) -> None:  # E47
    value: Any = 1
    for _ in range(depth):
        value = [value]
    take = house.app.tasks["take"]
    with pytest.raises(PayloadError):
        await take.enqueue(value)
    with pytest.raises(PayloadError):
        await take.enqueue_many([(1,), (value,)])
    assert sum((await house.app.jobs.counts()).values()) == 0


async def test_an_operation_as_slow_as_never_is_refused_and_a_slow_one_is_done(house: House) -> None:  # E32
    async with house.client(headers=JSON | await house.as_(Role.ADMIN)) as client:
        for rate in (b"0", b"-1", b"5e-324", b"1e-9", b"1e400", b'"5"', b"true", b"100001"):
            answer = await client.post(
                f"{API}/operations", content=b'{"action":"retry","filter":{},"rate":%b}' % rate
            )
            assert_refused(answer, 400, 422)
        answer = await client.post(f"{API}/operations", json={"action": "redrive", "filter": {"tag": "x"}})
        assert_refused(answer, 422)
        assert "there are: ids, task, queue" in answer.json()["detail"]


async def test_a_signed_message_may_name_no_job_that_cannot_be(house: House) -> None:  # E61
    from holdfast.webhooks.signature import sign

    webhook = await house.app.webhooks.create_inbound()
    async with house.client() as client:
        for number, job in enumerate(("x", "\x00", "\ud800", "x" * 9000, "' OR 1=1", "{", "019a8f6e")):
            body = json.dumps({"action": "retry", "job": job}).encode()
            signed = sign(
                webhook.secrets, f"msg_{number}", await (await house.app.runtime.engine()).store.now(), body
            )
            answer = await client.post(
                f"{API}/inbound/{webhook.id}", content=body, headers=JSON | dict(signed)
            )
            assert_refused(answer, 404, 422)


# -- keys of others -----------------------------------------------------------------------------------------------------
async def test_what_every_route_tells_a_stranger_is_the_same(house: House) -> None:  # E66
    told = set()
    async with house.client("192.0.2.7") as client:
        for route, path in itertools.product(ROUTES.values(), ("", "/nothing")):
            if route.action is None:
                continue
            answer = await client.request(min(route.methods or ()), filled(route.path) + path)
            assert_refused(answer, 401)
            told.add(json.dumps(answer.json() | {"instance": None}))
    assert len(told) == 1


async def test_whoever_does_not_heed_refusals_gets_them_later_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E66
    slept: list[float] = []

    class Clock(SystemClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    monkeypatch.setattr(rate_limits, "_AT_ONCE", 5)
    house = new_house(rate="10/min", clock=Clock())
    async with house.client(headers=await house.as_(Role.OWNER, "flood")) as client:
        told = [(await client.get(f"{API}/jobs")).status_code for _ in range(30)]
        assert told == [200] * 10 + [429] * 20
    assert len(slept) == 14  # the first finds out, five are told at once
    assert all(0.05 <= wait < 0.1 for wait in slept)
    async with house.client(headers=await house.as_(Role.OWNER, "calm")) as client:
        assert (await client.get(f"{API}/jobs")).status_code == 200
    assert len(slept) == 14
