"""A process that has loaded the parsers and forks a child for each file: `python -m … SOCKET PARENT LIMITS`.

Orders come over a socket, each a mapping's name with two open files: the PDF and where its XML goes. One answer follows
each order. The nursery itself never looks into a file.
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
from systems.converter.gateway.orders import MESSAGE_BYTES, Answer
from systems.converter.mapping.convert import convert
from systems.converter.mapping.names import MAPPINGS
from systems.converter.refusals import Refused
from systems.converter.samples import plain

_BY_SIGNAL = {
    signal.SIGALRM: refusals.TOO_LONG,
    signal.SIGXCPU: refusals.TOO_LONG,
    signal.SIGKILL: refusals.TOO_LONG,  # the hard limit of processor time
    signal.SIGXFSZ: refusals.OUTPUT_TOO_LARGE,
}


def main() -> int:
    orders = socket.socket(fileno=int(sys.argv[1]))
    end_with_parent(int(sys.argv[2]))
    limits = msgspec.json.decode(sys.argv[3], type=Limits)
    confined = deny_network()
    _rehearse()
    orders.send(msgspec.json.encode(Answer(ready=True, confined=confined)))
    gc.collect()
    gc.freeze()  # what is loaded now stays shared with the children: no collection touches its pages
    while True:
        message, files, _, _ = socket.recv_fds(orders, MESSAGE_BYTES, 2)
        if not message:
            return 0
        try:
            source, target = files
            answer = _raise_child(message.decode(), source, target, limits)
        except OSError as error:  # no process can be forked just now
            answer = Answer(error=f"{type(error).__name__}: {error}")
        finally:
            for file in files:
                os.close(file)
        orders.send(msgspec.json.encode(answer))


def _rehearse() -> None:
    """Convert a page of our own: who says that it is ready has shown it, and children find everything in place."""
    page = plain()
    for mapping in MAPPINGS:
        convert(page, mapping, io.BytesIO())


def _raise_child(mapping: str, source: int, target: int, limits: Limits) -> Answer:
    """Fork, let the child convert, and tell what it said or what it died of."""
    mouth, ear = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(mouth)
        _live(parent, mapping, source, target, ear, limits)
    os.close(ear)
    with os.fdopen(mouth, "rb") as pipe:
        said = pipe.read(MESSAGE_BYTES)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Answer(refusal=_BY_SIGNAL.get(signal.Signals(os.WTERMSIG(status)), refusals.CRASHED))
    if not said:
        return Answer(refusal=refusals.CRASHED)
    return msgspec.json.decode(said, type=Answer)


def _live(parent: int, mapping: str, source: int, target: int, ear: int, limits: Limits) -> NoReturn:
    """The child's whole life."""
    answer = Answer(error="the child was ended")
    try:
        end_with_parent(parent)
        confine(limits)
        gc.disable()  # it would touch pages that are shared, for a life this short
        answer = _convert(mapping, source, target)
    except BaseException as error:
        answer = Answer(error=f"{type(error).__name__}: {error}"[:1000])
    finally:
        # Not by way of the interpreter's end: this process is a copy, and what it would tidy up is the nursery's.
        os.write(ear, msgspec.json.encode(answer))
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
