"""All of grading as real processes, on a broker of the test: provider, API, relay and duties, callbacks, Celery workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2

from systems.grading.settings import Settings
from systems.grading.tasks import Grading, build
from systems.grading.worker.ledger import Ledger
from tests.commands import run_command

ROOT = Path(__file__).parents[3]
SECRET = "a secret of these tests and of nobody else"
COOLDOWN = 2.0
#: As quick as the rules allow: what is shown is the order of things, not the length of the waits.
QUICK = {
    "OUTBOX_POLL_INTERVAL_MS": "1000",
    "TIMEOUT_CHECK_INTERVAL_MS": "500",
    "RETRY_BASE_MS": "50",
    "RETRY_JITTER_MS": "50",
    "WORKER_LEASE_MS": "4000",  # a second call of the provider is to mean that a worker was lost
    "PROVIDER_TIMEOUT_MS": "5000",
    "CIRCUIT_COOLDOWN_MS": str(round(COOLDOWN * 1000)),
    "CALLBACK_BASE_MS": "200",
    "CALLBACK_TRIES": "8",
    "REDISPATCH_AFTER_MS": "4000",
    "HOLDFAST_LOG_LEVEL": "warning",
    "HOLDFAST_GRACE": "1s",
}
COMMANDS = {
    "provider": ["-m", "systems.provider", "--port", "0", "--faults"],
    "web": ["-m", "systems.grading.web", "--port", "0"],
    "engine": ["-m", "holdfast", "worker", "systems.grading.app:app"],
    "relay": ["-m", "holdfast", "relay", "systems.grading.app:app"],
    "callbacks": ["-m", "systems.grading.callbacks"],
    "celery": ["-m", "celery", "-A", "systems.grading.worker.app", "worker", "-P", "threads", "-c", "4", "-l", "warning"],
}  # fmt: skip
SAYS_READY = {"provider", "web", "callbacks"}


class Stack:
    """`with Stack(folder, broker_url) as grading: grading.submit("…")`. Each part can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        broker_url: str,
        database_url: str | None = None,
        ledger_url: str | None = None,
        **environment: str,
    ) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.environment = os.environ | QUICK | environment
        self.environment |= {
            "DATABASE_URL": database_url or f"sqlite:///{folder / 'grading.db'}",
            "BROKER_URL": broker_url,
            "CALLBACK_SECRETS": SECRET,
            "AUDIO_DIR": str(folder / "audio"),
            "LEDGER": ledger_url or str(folder / "ledger.db"),
            "PYTHONUNBUFFERED": "1",
        }
        self.environment["HOLDFAST_DATABASE_URL"] = self.environment["DATABASE_URL"]
        self.http = httpx2.Client(timeout=20, verify=False)
        self.provider = httpx2.Client(timeout=20, verify=False)

    # -- life -----------------------------------------------------------------------------------------------------------
    def __enter__(self) -> Stack:
        self.start("provider")
        for name in ("web", "engine", "relay", "callbacks", "celery"):
            self._begin(name)
        self._wait("web")
        self._wait("callbacks")
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.provider.close()
        for name in list(self.running):
            self.stop(name)
        self.ledger.close()

    def start(self, name: str) -> str:
        self._begin(name)
        return self._wait(name)

    def _begin(self, name: str) -> None:
        command = [sys.executable, *COMMANDS[name.partition(":")[0]]]
        if name.startswith("celery"):
            command += ["-n", f"{name.partition(':')[2] or 'one'}@test"]
        out = (self.folder / f"{name}.log").open("a")
        self.running[name] = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE if name in SAYS_READY else out,
            stderr=out,
            text=True,
            start_new_session=True,
        )
        out.close()

    def _wait(self, name: str) -> str:
        stdout = self.running[name].stdout
        if stdout is None:
            return ""
        line = stdout.readline()
        assert line.startswith("ready: "), f"{name} said {line!r}; {self.log(name)[-2000:]}"
        address = line.removeprefix("ready: ").strip()
        if name == "provider":
            self.environment["PROVIDER_URL"] = address
            self.provider.base_url = httpx2.URL(address)
        elif name == "web":
            self.http.base_url = httpx2.URL(address)
        return address

    def mend(self) -> None:
        """Every part runs, the provider is well and its breaker closed, whatever a test before has left."""
        for name in set(self.running) - set(COMMANDS):
            self.stop(name)
        for name in COMMANDS:
            process = self.running.get(name)
            if process is None or process.poll() is not None:
                if process is not None:
                    self.stop(name)
                self.start(name)
        self.heal()
        asyncio.run(self._close_breakers())

    async def _close_breakers(self) -> None:
        made = self.main()
        async with made.app:
            for state_of_dependency in await made.app.breakers.list():
                if state_of_dependency.breaker.state != "closed":
                    await made.app.breakers.close(
                        state_of_dependency.dependency.label, reason="the next test begins"
                    )

    def stop(self, name: str) -> None:
        self._end(name, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """As a crash would: no last words."""
        self._end(name, signal.SIGKILL)

    def _end(self, name: str, how: signal.Signals) -> None:
        process = self.running.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, how)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # -- use ------------------------------------------------------------------------------------------------------------
    def submit(self, text: str = "It rains, because it is autumn. However, I am glad.") -> dict[str, Any]:
        answer = self.http.post("/submissions", json={"skill": "writing", "text": text})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def speak(self, sound: bytes) -> dict[str, Any]:
        files = {"audio": ("a.wav", sound, "audio/wav")}
        answer = self.http.post("/submissions", data={"skill": "speaking"}, files=files)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def look(self, submission: dict[str, Any]) -> dict[str, Any]:
        return dict(self.http.get(f"/submissions/{submission['submissionId']}").json())

    def ended(self, submission: dict[str, Any], seconds: float = 20) -> dict[str, Any]:
        def has_ended() -> dict[str, Any] | None:
            found = self.look(submission)
            return found if found["status"] in ("COMPLETED", "FAILED") else None

        return dict(self.until(has_ended, seconds))

    def until(self, look: Callable[[], Any], seconds: float = 20) -> Any:
        """What *look* answers as soon as that is something."""
        end = time.monotonic() + seconds
        while True:
            if found := look():
                return found
            if time.monotonic() > end:
                told = "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in COMMANDS)
                raise AssertionError(f"this did not come about in {seconds} s\n{told}")
            time.sleep(0.05)

    def fault(self, **fault: Any) -> None:
        self.provider.post("/faults", json=fault).raise_for_status()

    def heal(self) -> None:
        self.provider.delete("/faults").raise_for_status()

    def calls(self, submission: dict[str, Any]) -> list[dict[str, Any]]:
        found = self.provider.get("/calls").json()["calls"]
        return [call for call in found if call["client_request_id"] == submission["requestId"]]

    def holdfast(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast", *words]
        return run_command(command, cwd=ROOT, env=self.environment)

    def dead_letters(self) -> list[dict[str, Any]]:
        return list(self.http.get("/dlq").json()["deadLetters"])

    def events(self, submission: dict[str, Any]) -> list[dict[str, Any]]:
        """All that were told, to the end of the submission."""
        with self.http.stream("GET", f"/submissions/{submission['submissionId']}/events") as stream:
            return [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(Settings.read(self.environment).ledger)

    def main(self) -> Grading:
        """The main app, in this process."""
        return build(Settings.read(self.environment))
