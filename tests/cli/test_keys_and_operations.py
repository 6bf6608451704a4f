"""`keys` and `operations` from the command line, and the filters of `jobs list`, on a real SQLite file."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast import Holdfast
from holdfast.cli import main

Capture = pytest.CaptureFixture[str]
URL = "sqlite:///shop.db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")  # so that no cell is folded
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with_app(lambda app: app.jobs.counts())
    yield tmp_path
    structlog.reset_defaults()


def with_app(do: Callable[[Holdfast], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Holdfast(URL) as app:
            return await do(app)

    return asyncio.run(run())


def answer(capsys: Capture, *command: str) -> Any:
    """What `--json` prints."""
    assert main([*command, "--url", URL, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys: Capture, *command: str, code: int = 0) -> str:
    """What people read."""
    assert main([*command, "--url", URL]) == code
    out, err = capsys.readouterr()
    return out + err


# -- keys -------------------------------------------------------------------------------------------------------------
def test_a_key_is_made_and_its_secret_shown_once(capsys: Capture, folder: Path) -> None:  # E66
    made = answer(capsys, "keys", "create", "--role", "owner", "--owner", "ann", "--expires", "90d")
    assert (made["role"], made["owner"], made["name"], made["revoked_at"]) == ("owner", "ann", "ann", None)
    assert "digest" not in made
    secret = made.pop("secret")
    [stored] = with_app(lambda app: app.keys.list())
    assert stored.digest == sha256(secret.encode()).digest()
    assert answer(capsys, "keys", "list") == {"keys": [made]}
    assert all(secret.encode() not in path.read_bytes() for path in folder.glob("shop.db*"))


def test_keys_are_shown_to_people(capsys: Capture) -> None:  # E66
    assert "No keys" in said(capsys, "keys", "list")
    told = said(capsys, "keys", "create", "--role", "viewer", "--name", "board")
    assert "hf_" in told
    assert "only a hash of it is stored" in told
    assert "board" in said(capsys, "keys", "list")


def test_a_key_is_revoked_and_then_listed_only_among_all(capsys: Capture) -> None:  # E66
    made = answer(capsys, "keys", "create", "--role", "admin")
    assert "key admin ends in 1 h" in said(capsys, "keys", "revoke", made["id"], "--after", "1h")
    assert "key admin is revoked" in said(capsys, "keys", "revoke", made["id"])
    assert answer(capsys, "keys", "list") == {"keys": []}
    assert [key["id"] for key in answer(capsys, "keys", "list", "--all")["keys"]] == [made["id"]]
    assert "no valid key has the id" in said(capsys, "keys", "revoke", made["id"], code=4)


def test_a_key_is_rotated(capsys: Capture) -> None:  # E66
    old = answer(capsys, "keys", "create", "--role", "operator", "--name", "ci")
    new = answer(capsys, "keys", "rotate", old["id"], "--overlap", "1h")
    assert new["secret"] != old["secret"]
    assert new["name"] == "ci"
    one, two = answer(capsys, "keys", "list")["keys"]
    assert (one["id"], two["id"]) == (old["id"], new["id"])
    assert one["revoked_at"] is not None
    assert "no valid key" in said(capsys, "keys", "rotate", "nothing", code=4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--role", "king"], "one of viewer"),
        (["--role", "owner"], "needs an owner"),
        (["--role", "admin", "--expires", "soon"], "not a duration"),
    ],
)
def test_a_key_that_makes_no_sense_is_a_usage_error(
    capsys: Capture, options: list[str], words: str
) -> None:  # E66
    assert words in said(capsys, "keys", "create", *options, code=2)


# -- operations -------------------------------------------------------------------------------------------------------
def test_operations_are_listed_shown_and_cancelled(capsys: Capture) -> None:  # E66
    assert "No operations" in said(capsys, "operations", "list")
    begun = with_app(lambda app: app.operations.begin("redrive", owner="ann", rate=5, by="me"))
    [listed] = answer(capsys, "operations", "list")["operations"]
    assert (listed["id"], listed["progress"], listed["filter"]) == (begun.id, "running", {"owner": "ann"})
    assert answer(capsys, "operations", "show", begun.id) == listed
    assert "0 of 0" in said(capsys, "operations", "list")
    assert "ann" in said(capsys, "operations", "show", begun.id)
    assert "is cancelled: 0 of 0" in said(capsys, "operations", "cancel", begun.id)
    assert answer(capsys, "operations", "cancel", begun.id)["progress"] == "cancelled"
    for verb in ("show", "cancel"):
        assert "no operation has the id nothing" in said(capsys, "operations", verb, "nothing", code=4)


# -- jobs -------------------------------------------------------------------------------------------------------------
def test_a_list_of_jobs_fills_its_page_however_few_match(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    monkeypatch.setattr("holdfast.stores.sqlite.search.MOST_READ", 4)

    async def fill(app: Holdfast) -> list[str]:
        async def send(number: int) -> None: ...

        task = app.task(send)
        return [
            (await task.options(key="k" if number % 5 == 0 else None, tags=["t"] if number % 5 == 0 else []).enqueue(number)).id
            for number in range(20)
        ]  # fmt: skip

    ids = with_app(fill)
    wanted = [ids[15], ids[10], ids[5], ids[0]]
    page = answer(capsys, "jobs", "list", "--tag", "t", "--limit", "3")
    assert [job["id"] for job in page["jobs"]] == wanted[:3]
    rest = answer(capsys, "jobs", "list", "--tag", "t", "--after", page["next"])
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (wanted[3:], None)
    found = answer(capsys, "jobs", "list", "--key", "k", "--created-after", "2001-01-01")
    assert [job["id"] for job in found["jobs"]] == wanted
    assert answer(capsys, "jobs", "list", "--error-code", "TIMEOUT")["jobs"] == []
    assert "created_before is 'soon'" in said(capsys, "jobs", "list", "--created-before", "soon", code=2)
