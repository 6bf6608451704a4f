"""The tour: `make demo`. It ends by itself, with exit code 0 if every promise held."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast import Holdfast
from holdfast.records import Event
from systems.common.children import NotStarted
from systems.converter.samples import SAMPLES, plain
from systems.converter.tour.display import Display, summary
from systems.converter.tour.processes import Processes

#: Each promise, whether it held, and what was seen.
Findings = list[tuple[str, bool, str]]
FIRST, DURING = 24, 12
ENOUGH = 12  #: unfinished files when the gateway goes down, so that the breaker sees enough calls


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="converter-tour-") as folder:
        console.print("Starting a gateway, the web app and two workers …")
        try:
            with Processes(Path(folder)) as processes:
                display = Display(processes, console)
                with display.live():
                    findings = _tour(processes, display)
        except NotStarted as lost:
            print(f"demo: the {lost} did not start; its output above has the reason", file=sys.stderr)
            return 1
    console.print(summary(findings))
    return 0 if all(held for _, held, _ in findings) else 1


def _tour(processes: Processes, display: Display) -> Findings:
    findings: Findings = []
    display.chapter(f"[bold]1.[/] {FIRST} PDFs are uploaded; each is on disk before its upload returns.")
    processes.break_gateway(latency_ms=1500)  # slow enough that a worker can be killed while it runs a job
    for nth in range(FIRST - len(SAMPLES)):
        processes.upload(
            f"page-{nth}.pdf", plain(1 + nth % 3, words=f"Page {nth}."), ("text", "jats", "alto")[nth % 3]
        )
    for name, make in SAMPLES.items():
        processes.upload(name, make(), "jats")
    display.chapter(
        "[bold]2.[/] A worker is killed with SIGKILL while it runs a job; another one replaces it."
    )
    display.until(lambda _: processes.kill_busy_worker(), seconds=20)
    processes.break_gateway(latency_ms=250)
    display.until(lambda seen: _count(seen, "complete") >= 10, seconds=30)
    findings += _outage(processes, display)
    findings += _dead_letter(processes, display)
    display.chapter("[bold]6.[/] The jobs' histories are checked.")
    return [*_check_histories(processes), *findings]


def _outage(processes: Processes, display: Display) -> Findings:
    display.chapter("[bold]3.[/] The gateway goes down. Files are retried, then the breaker holds the queue.")
    processes.break_gateway(status=502)
    # On a slow machine most are done by the time ten are seen to be. The breaker needs calls to open.
    for nth in range(ENOUGH - len(processes.samples) + _count(processes.jobs(), "complete")):
        processes.upload(f"more-{nth}.pdf", plain(words=f"More {nth}."), "text")
    held = display.until(lambda seen: bool(seen["held"]), seconds=30)
    late = {processes.upload(f"late-{nth}.pdf", plain(words=f"Late {nth}."), "text") for nth in range(DURING)}
    display.chapter(f"   Held. {DURING} more files are uploaded meanwhile; they wait, and use up no attempt.")
    display.until(lambda seen: False, seconds=6)
    waiting = len(processes.samples) - _count(processes.jobs(), "complete")
    display.chapter("[bold]4.[/] The gateway is back. The queue resumes by itself.")
    processes.repair_gateway()
    done = display.until(lambda seen: _count(seen, "complete") == len(processes.samples), seconds=40)
    jobs = processes.jobs()["jobs"]
    once = sum(job["attempt"] == 1 for job in jobs if job["id"] in late)
    return [
        ("an outage holds the queue", held, f"{waiting} files waited"),
        ("held files use up no attempt", once == DURING, f"{once} of {DURING} done in their first"),
        ("it resumes without a click", done, f"{_count({'jobs': jobs}, 'complete')} complete"),
    ]


def _dead_letter(processes: Processes, display: Display) -> Findings:
    display.chapter("[bold]5.[/] The gateway refuses a file: no retry can help, so it becomes a dead letter.")
    processes.break_gateway(status=422)
    job_id = processes.upload("unlucky.pdf", plain(words="Unlucky."), "text")

    def ended(seen: dict[str, Any]) -> bool:
        return any(job["id"] == job_id and job["state"] in ("failed", "complete") for job in seen["jobs"])

    display.until(ended, seconds=20)
    failed = next(job for job in processes.jobs()["jobs"] if job["id"] == job_id)
    processes.repair_gateway()
    display.chapter(
        f"   {failed['error_code']}: {failed['message']} The gateway is repaired, and the file redriven."
    )
    redriven = asyncio.run(_redrive(processes, job_id))
    done = display.until(lambda seen: _count(seen, "complete") == len(processes.samples), seconds=20)
    held = failed["state"] == "failed" and failed["attempt"] == 1 and redriven == 1 and done
    return [
        ("what cannot succeed waits for a person", held, f"{failed['attempt']} attempt, {redriven} redriven")
    ]


async def _redrive(processes: Processes, job_id: str) -> int:
    async with Holdfast(processes.environment["DATABASE_URL"]) as app:
        return await app.dead_letters.redrive(ids=job_id, by="demo")


def _check_histories(processes: Processes) -> Findings:
    histories = asyncio.run(_histories(processes))
    kinds = [event.kind for history in histories for event in history]
    ends = [sum(event.kind == "complete" for event in history) for history in histories]
    same = sum(_is_same(processes, job) for job in processes.jobs()["jobs"])
    lost, files = kinds.count("reclaimed"), len(processes.samples)
    return [
        ("nothing is lost or done twice", ends == [1] * files, f"{files} files, {sum(ends)} ends"),
        ("each XML equals the gateway's output", same == files, f"{same} of {files} byte for byte"),
        ("a killed worker's files are finished", lost > 0, f"{lost} reclaimed"),
    ]


async def _histories(processes: Processes) -> list[list[Event]]:
    async with Holdfast(processes.environment["DATABASE_URL"]) as app:
        return [await app.events.list(job_id=job_id) for job_id in processes.samples]


def _is_same(processes: Processes, job: dict[str, Any]) -> bool:
    if job["download"] is None:
        return False
    pdf = processes.samples[job["id"]]
    direct = processes.gateway.post("/convert", params={"mapping": job["mapping"]}, content=pdf)
    return bool(processes.page.get(job["download"]).content == direct.content)


def _count(seen: dict[str, Any], state: str) -> int:
    return sum(job["state"] == state for job in seen["jobs"])


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
