"""The tour: `make demo`. It ends by itself; the exit code says whether every promise held."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast import Event, Holdfast
from systems.common.children import NotStarted
from systems.converter.samples import SAMPLES, plain
from systems.converter.tour.board import Board, summary
from systems.converter.tour.stage import Stage

Told = list[tuple[str, bool, str]]
FIRST, DURING = 24, 12
ENOUGH = 12  #: files under way when the gateway goes down, so that the breaker sees calls


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="converter-tour-") as folder:
        console.print("Starting a gateway, the web app and two workers …")
        try:
            with Stage(Path(folder)) as stage:
                board = Board(stage, console)
                with board.shown():
                    told = _tour(stage, board)
        except NotStarted as lost:
            print(f"demo: the {lost} did not start; it says why above", file=sys.stderr)
            return 1
    console.print(summary(told))
    return 0 if all(held for _, held, _ in told) else 1


def _tour(stage: Stage, board: Board) -> Told:
    told: Told = []
    board.chapter(f"[bold]1.[/] {FIRST} PDFs are uploaded; each is on disk before its upload is answered.")
    stage.break_gateway(latency_ms=1500)  # slow enough that somebody dies with work in hand
    for nth in range(FIRST - len(SAMPLES)):
        stage.upload(
            f"page-{nth}.pdf", plain(1 + nth % 3, words=f"Page {nth}."), ("text", "jats", "alto")[nth % 3]
        )
    for name, make in SAMPLES.items():
        stage.upload(name, make(), "jats")
    board.chapter(
        "[bold]2.[/] A worker is killed with SIGKILL in the middle of its work; another takes its place."
    )
    board.until(lambda _: stage.kill_busy_worker(), seconds=20)
    stage.break_gateway(latency_ms=250)
    board.until(lambda seen: _count(seen, "complete") >= 10, seconds=30)
    told += _outage(stage, board)
    told += _dead_letter(stage, board)
    board.chapter("[bold]6.[/] The books are read.")
    return [*_books(stage), *told]


def _outage(stage: Stage, board: Board) -> Told:
    board.chapter("[bold]3.[/] The gateway goes down. Files are retried, then the breaker holds the queue.")
    stage.break_gateway(status=502)
    # On a slow machine most are done by the time we have seen that ten are: a breaker opens by calls, not by their absence.
    for nth in range(ENOUGH - len(stage.samples) + _count(stage.look(), "complete")):
        stage.upload(f"more-{nth}.pdf", plain(words=f"More {nth}."), "text")
    held = board.until(lambda seen: bool(seen["held"]), seconds=30)
    late = {stage.upload(f"late-{nth}.pdf", plain(words=f"Late {nth}."), "text") for nth in range(DURING)}
    board.chapter(f"   Held. {DURING} more files are uploaded meanwhile; they wait, and use up no attempt.")
    board.until(lambda seen: False, seconds=6)
    waiting = len(stage.samples) - _count(stage.look(), "complete")
    board.chapter("[bold]4.[/] The gateway is back. Nobody clicks anything.")
    stage.mend_gateway()
    done = board.until(lambda seen: _count(seen, "complete") == len(stage.samples), seconds=40)
    jobs = stage.look()["jobs"]
    once = sum(job["attempt"] == 1 for job in jobs if job["id"] in late)
    return [
        ("an outage holds the queue", held, f"{waiting} files waited"),
        ("held files burn no attempt", once == DURING, f"{once} of {DURING} done in their first"),
        ("it resumes without a click", done, f"{_count({'jobs': jobs}, 'complete')} complete"),
    ]


def _dead_letter(stage: Stage, board: Board) -> Told:
    board.chapter(
        "[bold]5.[/] The gateway refuses a file: no retry can help, so it is a dead letter for a person to see."
    )
    stage.break_gateway(status=422)
    job_id = stage.upload("unlucky.pdf", plain(words="Unlucky."), "text")

    def ended(seen: dict[str, Any]) -> bool:
        return any(job["id"] == job_id and job["state"] in ("failed", "complete") for job in seen["jobs"])

    board.until(ended, seconds=20)
    failed = next(job for job in stage.look()["jobs"] if job["id"] == job_id)
    stage.mend_gateway()
    board.chapter(
        f"   {failed['error_code']}: {failed['message']} The gateway is mended, and the file redriven."
    )
    redriven = asyncio.run(_redrive(stage, job_id))
    done = board.until(lambda seen: _count(seen, "complete") == len(stage.samples), seconds=20)
    held = failed["state"] == "failed" and failed["attempt"] == 1 and redriven == 1 and done
    return [
        ("what cannot succeed waits for a person", held, f"{failed['attempt']} attempt, {redriven} redriven")
    ]


async def _redrive(stage: Stage, job_id: str) -> int:
    async with Holdfast(stage.environment["DATABASE_URL"]) as app:
        return await app.redrive(job_id, by="demo")


def _books(stage: Stage) -> Told:
    histories = asyncio.run(_histories(stage))
    kinds = [event.kind for history in histories for event in history]
    ends = [sum(event.kind == "complete" for event in history) for history in histories]
    same = sum(_is_same(stage, job) for job in stage.look()["jobs"])
    lost, files = kinds.count("reclaimed"), len(stage.samples)
    return [
        ("nothing is lost, nothing is doubled", ends == [1] * files, f"{files} files, {sum(ends)} ends"),
        ("each XML is what the gateway makes of it", same == files, f"{same} of {files} byte for byte"),
        ("a killed worker's files go on", lost > 0, f"{lost} reclaimed"),
    ]


async def _histories(stage: Stage) -> list[list[Event]]:
    async with Holdfast(stage.environment["DATABASE_URL"]) as app:
        return [await app.events(job_id=job_id) for job_id in stage.samples]


def _is_same(stage: Stage, job: dict[str, Any]) -> bool:
    if job["download"] is None:
        return False
    pdf = stage.samples[job["id"]]
    direct = stage.gateway.post("/convert", params={"mapping": job["mapping"]}, content=pdf)
    return bool(stage.page.get(job["download"]).content == direct.content)


def _count(seen: dict[str, Any], state: str) -> int:
    return sum(job["state"] == state for job in seen["jobs"])


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
