"""The gateway as its clients meet it: a real process, asked over HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lxml import etree

from systems.converter.content import MAX_BYTES
from systems.converter.pdfs import Sheet, document
from systems.converter.samples import article, plain
from tests.commands import run_command
from tests.systems.converter.gateways import ROOT, RunningGateway, children_of, wait_for_ends
from tests.systems.converter.hostile import FILES, encrypted, endless_text, hostile_xml, with_content, xmp


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(tmp_path_factory.mktemp("gateway"), "--size", "2") as running:
        yield running


def of_size(size: int) -> bytes:
    """A PDF of exactly *size* bytes, most of them in a comment."""
    pdf = plain()
    end = pdf.rindex(b"xref\n0 ")
    start = pdf.rindex(b"startxref\n") + 10
    padding = size - len(pdf) - len(str(size)) + len(pdf[start:].split()[0])
    rest = pdf[end:start] + b"%d" % (end + padding) + b"\n%%EOF\n"
    padded = pdf[:end] + b"%" + b"x" * (padding - 2) + b"\n" + rest
    return padded + b"\n" * (size - len(padded))


@pytest.mark.parametrize("mapping", ["text", "jats", "alto"])
def test_a_pdf_goes_in_and_xml_comes_out(gateway: RunningGateway, mapping: str) -> None:  # C5
    answers = [gateway.convert(article(), mapping) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].headers["content-type"] == "application/xml; charset=utf-8"
    assert "Lovelace" in "".join(etree.fromstring(answers[0].content).xpath("//text() | //@CONTENT"))
    assert answers[0].content == answers[1].content


def test_a_long_document_comes_out_whole(gateway: RunningGateway) -> None:
    answer = gateway.convert(plain(400))
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content) > 1_000_000
    assert len(etree.fromstring(answer.content)) == 400


def test_an_unknown_mapping_is_not_acceptable(gateway: RunningGateway) -> None:  # C1
    for mapping in ("docx", "", "../../etc/passwd", "a\r\nX: y"):
        answer = gateway.convert(plain(), mapping)
        assert answer.status_code == 406
        assert answer.json()["code"] == "INVALID_MAPPING"


def test_health_is_told(gateway: RunningGateway) -> None:
    answer = gateway.http.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


def test_the_fault_switch_is_not_there_unless_enabled(gateway: RunningGateway) -> None:
    assert gateway.http.post("/faults", json={"status": 500}).status_code == 404
    assert gateway.convert(plain()).status_code == 200


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_gets_its_answer_and_harms_nobody(gateway: RunningGateway, name: str) -> None:  # C5
    hostile = FILES[name]
    answer = gateway.convert(hostile.make(), "jats")
    assert answer.status_code == hostile.status
    if hostile.status != 200:
        problem = answer.json()
        assert problem["status"] == hostile.status
        assert hostile.code in ("", problem["code"])
        assert "\n" not in problem["detail"]
        assert problem["detail"].endswith(".")
    assert list(gateway.spool.iterdir()) == []
    assert gateway.convert(plain()).status_code == 200


def test_entities_of_strangers_are_not_resolved(gateway: RunningGateway, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("do not tell")
    entities = b'<!ENTITY a "ha"><!ENTITY file SYSTEM "%s">' % (tmp_path / "secret").as_uri().encode()
    text = gateway.convert(hostile_xml("xmp", xmp(entities, b"&a;&a;&file;")), "jats").text
    assert "do not tell" not in text
    assert "haha" not in text
    assert "harmless" in text


def test_an_honest_packet_is_read(gateway: RunningGateway) -> None:
    packet = xmp(b"", b"Told by the file").partition(b"]>")[2]
    assert "Told by the file" in gateway.convert(hostile_xml("xmp", packet), "jats").text


def test_a_file_that_opens_without_a_password_is_converted(gateway: RunningGateway) -> None:
    assert gateway.convert(encrypted(user="")).status_code == 200


def test_a_file_of_exactly_the_limit_is_taken_in_little_memory(gateway: RunningGateway) -> None:  # C1
    before = gateway.peak_memory()
    pdf = of_size(MAX_BYTES)
    assert len(pdf) == MAX_BYTES
    assert gateway.convert(pdf).status_code == 200
    assert gateway.peak_memory() - before <= 16_000_000


def test_one_byte_more_is_refused_by_what_was_announced(gateway: RunningGateway) -> None:  # C1
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        head = f"POST /convert?mapping=text HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BYTES + 1}\r\n\r\n"
        connection.sendall(head.encode() + b"%PDF-")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")  # and the rest was never sent


def test_one_byte_more_is_refused_when_nothing_was_announced(gateway: RunningGateway) -> None:  # C1
    def body() -> Iterator[bytes]:
        yield b"%PDF-1.7\n"
        for _ in range(MAX_BYTES // 1_000_000 + 1):
            yield b" " * 1_000_000

    answer = gateway.convert(body())
    assert answer.status_code == 413
    assert answer.json()["code"] == "TOO_LARGE"


def test_an_upload_that_is_cut_leaves_nothing(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(
            b"POST /convert?mapping=text HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n%PDF-1.7\n"
        )
        connection.sendall(b" " * 500_000)
    assert gateway.convert(plain()).status_code == 200
    assert list(gateway.spool.iterdir()) == []
    assert gateway.http.get("/healthz").json()["busy"] == 0


def test_a_child_that_is_lost_with_its_fork_server_is_replaced(gateway: RunningGateway) -> None:
    for fork_server in gateway.fork_servers():
        os.kill(fork_server, signal.SIGKILL)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(gateway.convert, [plain()] * 8))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len(gateway.fork_servers()) == 2


def _frozen_child(gateway: RunningGateway) -> int:
    """The child that is at work, once its limits are set; stopped, so that it stays at work."""
    [fork_server] = gateway.fork_servers()
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        for child in children_of(fork_server):
            if _limits(child).get("Max file size", "unlimited") != "unlimited":
                os.kill(child, signal.SIGSTOP)
                return child
    raise AssertionError("no child was seen")


def _limits(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return {}
    return {line[:26].strip(): line[26:].split()[0] for line in lines[1:]}


def test_each_file_is_read_in_a_process_of_its_own_under_limits(tmp_path: Path) -> None:  # C5
    with RunningGateway(tmp_path, "--size", "1") as gateway, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(gateway.convert, endless_text())
        child = _frozen_child(gateway)
        limits, status = _limits(child), Path(f"/proc/{child}/status").read_text()
        os.kill(child, signal.SIGKILL)
        answer = asked.result()
    assert limits["Max address space"] == str(512 * 1024 * 1024)
    assert limits["Max cpu time"] == "30"
    assert "Seccomp:\t2" in status
    assert (answer.status_code, answer.json()["code"]) == (422, "TOO_COMPLEX")


def test_a_confined_process_reaches_no_network_and_starts_no_program() -> None:  # C5
    program = """
import os, socket
from systems.converter.gateway.limits import deny_network
assert deny_network()
for attempt in (socket.socket, lambda: os.execv("/bin/true", ["true"])):
    try:
        attempt()
    except PermissionError:
        print("denied")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["denied", "denied"]


def test_a_confined_process_has_no_kill_and_no_way_around_the_filter() -> None:  # C5
    """io_uring could open sockets without the calls that are denied; by kill a child could end the gateway."""
    program = """
import ctypes, errno, os
from systems.converter.gateway.limits import deny_network
assert deny_network()
libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(256)
for number in (425, 424):  # io_uring_setup, pidfd_send_signal: the same on every machine
    assert libc.syscall(number, 1, room, 0, 0) == -1
    print(errno.errorcode[ctypes.get_errno()], flush=True)
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    print("EPERM", flush=True)
os.abort()  # a process may still end itself
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["EPERM"] * 3, done.stderr
    assert done.returncode == -signal.SIGABRT


def test_a_file_that_takes_too_long_is_ended(tmp_path: Path) -> None:  # C5
    with RunningGateway(tmp_path, "--size", "1", "--seconds", "2", "--memory-mb", "4000") as gateway:
        answer = gateway.convert(endless_text())
        assert (answer.status_code, answer.json()["code"]) == (422, "TOO_COMPLEX")
        assert "takes longer" in answer.json()["detail"]
        assert gateway.convert(plain()).status_code == 200


def test_one_too_many_is_asked_to_come_again(tmp_path: Path) -> None:  # C5
    with (
        RunningGateway(tmp_path, "--size", "1", "--waiting", "0") as gateway,
        ThreadPoolExecutor(1) as threads,
    ):
        slow = threads.submit(gateway.convert, endless_text())
        child = _frozen_child(gateway)
        answer = gateway.convert(plain())
        os.kill(child, signal.SIGKILL)
        assert (answer.status_code, answer.json()["code"]) == (429, "BUSY")
        assert answer.headers["retry-after"] == "1"
        assert slow.result().status_code == 422
        assert gateway.convert(plain()).status_code == 200


def test_an_upload_that_stops_coming_is_ended(tmp_path: Path) -> None:
    with (
        RunningGateway(tmp_path, "--size", "1", "--stalled-seconds", "1") as gateway,
        socket.create_connection(("127.0.0.1", gateway.port)) as connection,
    ):
        connection.sendall(
            b"POST /convert?mapping=text HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n%PDF-1.7\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_gateway_that_is_killed_takes_its_children_along_and_leaves_no_file(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, "--size", "1") as gateway:
        [fork_server] = gateway.fork_servers()
        asking = threading.Thread(target=_ask_in_vain, args=(gateway,))
        asking.start()
        child = _frozen_child(gateway)
        gateway.process.kill()
        assert wait_for_ends([fork_server, child], 30)
        asking.join()
        assert list(gateway.spool.iterdir()) == []


def _ask_in_vain(gateway: RunningGateway) -> None:
    try:
        gateway.convert(endless_text())
    except Exception:
        pass  # the answer never comes: that is what is played


def test_a_gateway_that_is_told_to_stop_stops_with_its_fork_servers(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, "--size", "2") as gateway:
        fork_servers = gateway.fork_servers()
        gateway.process.terminate()
        gateway.process.wait(30)
        assert wait_for_ends(fork_servers, 30)


def test_a_port_that_is_taken_is_told_in_one_line(gateway: RunningGateway) -> None:
    command = [sys.executable, "-m", "systems.converter.gateway", "--port", str(gateway.port)]
    done = run_command(command, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "choose another with --host or --port" in done.stderr


def test_a_blank_page_between_others_stays_a_page(gateway: RunningGateway) -> None:
    sheet = Sheet()
    sheet.write(60, 60, "text")
    root = etree.fromstring(gateway.convert(document([Sheet(), sheet, Sheet()])).content)
    assert [len(page) for page in root] == [1, 2, 1]


def test_a_page_with_broken_content_is_read_as_far_as_it_goes(gateway: RunningGateway) -> None:
    content = (
        b"<< /Length 60 >>\nstream\nBT /F 12 Tf 60 700 Td (seen) Tj ET (((( << [ q q q 1 0 Tj\nendstream"
    )
    answer = gateway.convert(with_content(content))
    assert answer.status_code == 200
    assert "seen" in answer.text


def test_the_process_that_meets_the_world_has_no_parser_in_it() -> None:  # C5
    program = (
        "import sys, systems.converter.gateway.__main__\n"
        "print([name for name in ('pypdfium2', 'pikepdf', 'lxml') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
