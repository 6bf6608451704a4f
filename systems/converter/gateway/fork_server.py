"""The fork server: a process with the parsers loaded that forks a child for each file.

Run as `python -m systems.converter.gateway.fork_server SOCKET PARENT LIMITS`.

Requests come over the socket, each with the name of a mapping and two open files: the PDF, and the file for
its XML. Each request gets one answer. The fork server itself never reads a file.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import socket
import sys
from typing import NoReturn

import msgspec

from systems.converter import refusals
from systems.converter.gateway.limits import Limits, confine, deny_network, end_with_parent
from systems.converter.gateway.messages import MESSAGE_BYTES, Answer
from systems.converter.mapping.convert import convert
from systems.converter.mapping.names import MAPPINGS
from systems.converter.refusals import Refused
from systems.converter.samples import plain

_BY_SIGNAL = {
    signal.SIGALRM: refusals.TOO_LONG,
    signal.SIGXCPU: refusals.TOO_LONG,
    signal.SIGKILL: refusals.TOO_LONG,  # the hard limit on processor time
    signal.SIGXFSZ: refusals.OUTPUT_TOO_LARGE,
}


def main() -> int:
    requests = socket.socket(fileno=int(sys.argv[1]))
    end_with_parent(int(sys.argv[2]))
    limits = msgspec.json.decode(sys.argv[3], type=Limits)
    confined = deny_network()
    _warm_up()
    requests.send(msgspec.json.encode(Answer(ready=True, confined=confined)))
    gc.collect()
    gc.freeze()  # keeps the loaded pages shared with the children: no collection writes to them
    while True:
        message, files, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 2)
        if not message:
            return 0
        try:
            source, target = files
            answer = _run_child(message.decode(), source, target, limits)
        except OSError as error:  # the fork failed
            answer = Answer(error=f"{type(error).__name__}: {error}")
        finally:
            for file in files:
                os.close(file)
        requests.send(msgspec.json.encode(answer))


def _warm_up() -> None:
    """Convert a known page.

    This proves that conversions work, and loads everything that the children need.
    """
    page = plain()
    for mapping in MAPPINGS:
        convert(page, mapping, io.BytesIO())


def _run_child(mapping: str, source: int, target: int, limits: Limits) -> Answer:
    """Fork a child that converts the file. Return its answer, or the refusal for the signal that ended it."""
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child_main(parent, mapping, source, target, writing, limits)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read(MESSAGE_BYTES)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Answer(refusal=_BY_SIGNAL.get(signal.Signals(os.WTERMSIG(status)), refusals.CRASHED))
    if not message:
        return Answer(refusal=refusals.CRASHED)
    return msgspec.json.decode(message, type=Answer)


def _child_main(
    parent: int, mapping: str, source: int, target: int, writing: int, limits: Limits
) -> NoReturn:
    """Convert one file in the child, write the answer to the pipe, and exit."""
    answer = Answer(error="the child was ended")
    try:
        end_with_parent(parent)
        confine(limits)
        gc.disable()  # a collection would copy shared pages, and the child soon exits
        answer = _convert(mapping, source, target)
    except BaseException as error:
        answer = Answer(error=f"{type(error).__name__}: {error}"[:1000])
    finally:
        # No normal exit: this process is a copy, and its cleanup would be that of the fork server.
        os.write(writing, msgspec.json.encode(answer))
        os._exit(0)


def _convert(mapping: str, source: int, target: int) -> Answer:
    try:
        with os.fdopen(os.dup(source), "rb") as pdf:
            pdf.seek(0)
            data = pdf.read()
        with os.fdopen(os.dup(target), "wb") as out:
            convert(data, mapping, out)
    except Refused as refused:
        return Answer(refusal=refused.refusal)
    except MemoryError:
        return Answer(refusal=refusals.TOO_MUCH_MEMORY)
    except RecursionError:
        return Answer(refusal=refusals.BROKEN)
    return Answer()


if __name__ == "__main__":
    sys.exit(main())
