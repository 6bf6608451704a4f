"""Tracebacks as values: types, messages, frames and causes of exceptions.

They contain no source lines and no variables, so no file is read and no argument is recorded. `observe` turns
an exception into a `Raised`: plain data that can be sent from one process to another. A `Traceback` is its
text of at most `MOST_BYTES`, identified by a hash. The message of the outermost exception is not part of the
text, because the attempt stores it: jobs that fail at the same line share one traceback.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import NamedTuple

#: The largest text of a traceback.
MOST_BYTES = 8_000
#: How many first and last frames of an exception are kept; those between are only counted.
FIRST_FRAMES, LAST_FRAMES = 10, 30
#: Most exceptions in one traceback (causes and members of groups together), and most members of one group.
MOST_RAISED, MOST_MEMBERS = 20, 5
#: Characters of a message that are kept, and how many are searched for secrets.
LONGEST_MESSAGE, SEARCHED = 500, 2_000
LONGEST_NAME = 200

#: Modules that call every handler or import every module: their frames are left out.
HIDDEN_MODULES = frozenset(
    {
        "holdfast.worker.attempts",
        "holdfast.worker.processes",
        "holdfast.cli.apps",
        "concurrent.futures.thread",
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
    }
)
#: The attribute in which an exception from another process carries its `Raised`: it loses its frames on the
#: way.
REMOTE = "_holdfast_raised"

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


class Frame(NamedTuple):
    """One line of a traceback."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception with its frames, its group members and the exception that was raised before it."""

    kind: str
    message: str
    frames: tuple[Frame, ...] = ()
    elided: int = 0  #: frames left out after the first ones
    members: tuple[Raised, ...] = ()
    others: int = 0  #: group members left out
    before: Raised | None = None  #: its cause or context
    is_cause: bool = False  #: whether *before* is the cause (`raise … from …`)

    @property
    def has_frames(self) -> bool:
        """Return whether this exception or one of its members or causes has frames."""
        inner = (*self.members, self.before) if self.before else self.members
        return bool(self.frames) or any(one.has_frames for one in inner)


@dataclass(frozen=True, slots=True)
class Traceback:
    """The text of a traceback; two with the same *key* are equal."""

    key: str
    text: str = field(compare=False, repr=False)

    @classmethod
    def of(cls, raised: Raised) -> Traceback:
        """Return the traceback of *raised*."""
        text = render(raised)
        return cls(hashlib.sha256(text.encode()).hexdigest()[:32], text)

    def with_message(self, detail: str) -> str:
        """Return the text with the message of the outermost exception.

        *detail* is the type and message that the attempt stores, e.g. `ValueError: no number`.
        """
        name = self.text.rpartition("\n")[2].rpartition(".")[2]
        return self.text + detail[len(name) :] if detail.startswith(f"{name}: ") else self.text


# -- observing ---------------------------------------------------------------------------------------------
def observe(
    error: BaseException,
    place: Callable[[str], str],
    redact: Callable[[str], str],
    *,
    with_message: bool = True,
) -> Raised:
    """Return *error* with its frames and causes as plain data.

    Args:
        error: The exception, as it was caught.
        place: Converts the file name that Python knows to the one that is shown.
        redact: Hides secrets in a message.
        with_message: Whether to include the message of *error* itself. Those of its causes always are.
    """
    return _Observer(place, redact).observe(error, with_message)


class _Observer:
    def __init__(self, place: Callable[[str], str], redact: Callable[[str], str]) -> None:
        self._place, self._redact = place, redact
        self._seen: set[int] = set()  # causes can form a cycle

    def observe(self, error: BaseException, with_message: bool = True) -> Raised:
        self._seen.add(id(error))
        remote = getattr(error, "__dict__", {}).get(REMOTE)
        if isinstance(remote, Raised):
            return remote
        frames, elided = self._frames(error.__traceback__)
        inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        members = tuple(self.observe(one) for one in islice(inner, MOST_MEMBERS) if self._is_new(one))
        first = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return Raised(
            _name(type(error)),
            self._message(error) if with_message else "",
            frames,
            elided,
            members,
            len(inner) - len(members),
            None if first is None or not self._is_new(first) else self.observe(first),
            error.__cause__ is not None,
        )

    def _is_new(self, error: BaseException) -> bool:
        return id(error) not in self._seen and len(self._seen) < MOST_RAISED

    def _frames(self, traceback: TracebackType | None) -> tuple[tuple[Frame, ...], int]:
        steps = _steps(traceback)
        first = list(islice(steps, FIRST_FRAMES))
        last: deque[TracebackType] = deque(maxlen=LAST_FRAMES)
        rest = 0
        for rest, step in enumerate(steps, 1):  # noqa: B007 - counts the steps
            last.append(step)
        return tuple(map(self._frame, (*first, *last))), rest - len(last)

    def _frame(self, step: TracebackType) -> Frame:
        code = step.tb_frame.f_code
        return Frame(_plain(self._place(code.co_filename)), step.tb_lineno, _plain(code.co_qualname))

    def _message(self, error: BaseException) -> str:
        try:
            text = str(error)
        except Exception:  # its __str__ is not our code
            return "(its text cannot be read)"
        if len(text) > SEARCHED:  # cut at a space: half a secret at the end would not be recognized
            text = (text[:SEARCHED].rsplit(None, 1)[0] if " " in text[:SEARCHED] else "") + "…"
        return _plain(" ".join(self._redact(text).split()), LONGEST_MESSAGE)


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__") not in HIDDEN_MODULES:
            yield traceback
        traceback = traceback.tb_next


def _name(kind: type[BaseException]) -> str:
    module = kind.__module__
    return _plain(
        kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    )


def _plain(text: str, longest: int = LONGEST_NAME) -> str:
    """Return *text* on one line, cut to *longest*, in characters that any store and terminal can handle."""
    if not text.isprintable():
        text = "".join(
            sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
        )
    return text if len(text) <= longest else text[: longest - 1] + "…"


# -- rendering ---------------------------------------------------------------------------------------------
def render(raised: Raised) -> str:
    """Return the text of *raised* in Python's format, without source lines.

    Frames in the middle are left out until the text fits into `MOST_BYTES`.
    """
    text = ""
    for most in (FIRST_FRAMES + LAST_FRAMES, 16, 8, 4, 2):
        text = "\n".join(_lines(raised, most, outermost=True))
        if len(text.encode()) <= MOST_BYTES:
            return text
    half, kept = MOST_BYTES // 2 - 20, text.encode()
    head, tail = kept[:half].decode(errors="ignore"), kept[-half:].decode(errors="ignore")
    return f"{head}\n… left out …\n{tail}"


def _lines(raised: Raised, most: int, *, outermost: bool = False) -> Iterator[str]:
    if raised.before is not None:
        yield from _lines(raised.before, most)
        yield from ("", _CAUSE if raised.is_cause else _CONTEXT, "")
    if raised.frames:
        yield "Traceback (most recent call last):"
        yield from _frame_lines(raised, most)
    for number, member in enumerate(raised.members, 1):
        yield f"  Sub-exception {number} of {len(raised.members) + raised.others}:"
        yield from (f"    {line}" if line else "" for line in _lines(member, most))
    yield raised.kind if outermost or not raised.message else f"{raised.kind}: {raised.message}"


def _frame_lines(raised: Raised, most: int) -> Iterator[str]:
    lines = [f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in raised.frames]
    first = FIRST_FRAMES if len(lines) <= most else most // 4
    last = len(lines) - first if len(lines) <= most else most - first
    elided = raised.elided + max(0, len(lines) - first - max(last, 0))
    yield from lines[:first]
    if elided:
        yield f"  … {elided:,} frames left out …"
    if last > 0:
        yield from lines[-last:]
