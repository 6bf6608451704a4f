"""A server with a long log and with very many clients: what it holds in memory is bounded, and it goes on."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.ageing import grow

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

EVENTS = int(os.environ.get("NIGHTLY_JOBS", "1000000"))
CLIENTS = int(os.environ.get("NIGHTLY_CLIENTS", "10000"))
MEGABYTE = 2**20
PROBE = b"GET /livez HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"

Note = Callable[[str, object], None]


class Serving:
    """`holdfast serve` as a process of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        (folder / "shop.py").write_text(f"from holdfast import Holdfast\napp = Holdfast({url!r})\n")
        command = [sys.executable, "-m", "holdfast", "serve", "shop:app", "--port", "0"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        address = next(line for line in lines if line.startswith("API:"))
        self.port = int(address.rsplit(":", 1)[1].partition("/")[0])

    @property
    def peak(self) -> int:
        """The most memory it ever had, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024

    async def answers(self) -> bool:
        """Whether it answers a request within a few seconds."""
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(PROBE)
            said = await reader.read()
            writer.close()
        return b" 200 " in said.partition(b"\r\n")[0]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], Serving]]:
    started: list[Serving] = []

    def begin(url: str) -> Serving:
        started.append(Serving(tmp_path, url))
        return started[-1]

    yield begin
    for one in started:
        one.stop()


def test_a_stream_over_a_million_events_takes_little_memory(
    database_url: str, serve: Callable[[str], Serving], record_property: Note
) -> None:  # E60
    asyncio.run(grow(database_url, EVENTS))
    serving = serve(database_url)

    async def read() -> int:
        """Read until every event was there once; how many they were."""
        assert await serving.answers()
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port, limit=MEGABYTE)
        writer.write(b"GET /api/v1/events/stream?after=0 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        count, last = 0, -1
        async with asyncio.timeout(1500):
            with closing(writer):
                while count < most:
                    line = await reader.readline()
                    assert line, "the stream ended"
                    count += line.startswith(b"data: ")
                    if line.startswith(b"id: "):
                        assert int(line[4:]) > last  # none twice, none out of order
                        last = int(line[4:])
        return count

    most = EVENTS - 2 * 980  # two batches of the loaded jobs are short
    before = serving.peak
    assert asyncio.run(read()) == most
    grown = (serving.peak - before) / MEGABYTE
    record_property(
        f"{database_url.partition(':')[0]}: megabytes for a stream of {most:,} events", round(grown, 1)
    )
    assert grown < 150


def test_ten_thousand_connections_keep_nobody_out_for_long(
    sqlite_url: str, serve: Callable[[str], Serving], record_property: Note
) -> None:  # E66
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < CLIENTS + 500:
        pytest.skip(f"a process may open {most:,} files here; it takes {CLIENTS + 500:,}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(grow(sqlite_url, 0))
    serving = serve(sqlite_url)

    async def crowd() -> tuple[int, int]:
        """Open them all with half a head each; how many were closed by the server, and how many probes were answered."""
        clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        probes = 0
        for number in range(CLIENTS):
            reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.")
            clients.append((reader, writer))
            if number % 1000 == 999:
                probes += await serving.answers()
        async with asyncio.timeout(120):
            await asyncio.gather(*(reader.read() for reader, _ in clients), return_exceptions=True)
        probes += await serving.answers()
        for _, writer in clients:
            writer.close()
        return len(clients), probes

    before = serving.peak
    closed, probes = asyncio.run(crowd())
    grown = (serving.peak - before) / MEGABYTE
    record_property(f"megabytes for {CLIENTS:,} connections", round(grown, 1))
    assert (closed, probes) == (CLIENTS, CLIENTS // 1000 + 1)
    assert grown < 500
