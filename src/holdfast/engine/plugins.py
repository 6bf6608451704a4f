"""Plug-ins: classifiers, backoffs, gates, notifiers and transports that other packages bring by entry point (E19).

They are named in `holdfast.toml`, a transport by the address of a topic, and loaded when they are first needed. One that cannot be loaded, raises or answers
nonsense is named in the log, once for each kind of error, and Holdfast does what it would do without it: a plug-in can
be useless, but it cannot lose a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.domain.backoff import Curve, exponential
from holdfast.domain.classify import Rule
from holdfast.domain.duration import duration
from holdfast.domain.gates import Admit, Gate, GateAnswer, Hold, Reject
from holdfast.domain.suggest import suggest
from holdfast.errors import Fatal, Retryable, UsageError
from holdfast.logs import Log

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

A = TypeVar("A")

#: What a plug-in can be, and the group of entry points it is found in.
GROUPS = {
    "classifier": "holdfast.classifiers",
    "backoff": "holdfast.backoffs",
    "gate": "holdfast.gates",
    "notifier": "holdfast.notifiers",
    "transport": "holdfast.transports",
}

#: What is done without a plug-in that fails; with those of other kinds the default is used.
_INSTEAD = {"notifier": "it is called again", "transport": "its messages wait"}
#: How long a notifier may take for one event, in seconds.
NOTIFY_WITHIN = 10.0

log = Log("holdfast.plugins")


def installed(kind: str) -> dict[str, EntryPoint]:
    """The plug-ins of this *kind* by name; none of them is loaded. Of two with one name, always the same one is taken."""
    from importlib.metadata import entry_points  # takes long, and few have plug-ins

    found = sorted(entry_points(group=GROUPS[kind]), key=lambda entry: entry.value, reverse=True)
    return {entry.name: entry for entry in found}


@cache
def classifier(name: str) -> Rule:
    """A rule: given an exception it answers a code, `Retryable(…)` or `Fatal(…)`, or None for no opinion."""
    plugin = Plugin("classifier", name)
    return lambda error: plugin.ask(error, _opinion, None)


@cache
def backoff(name: str) -> Curve:
    """A curve: given the number of the failed attempt, from 1, it answers a duration."""
    plugin = Plugin("backoff", name)
    usual = exponential("5s")
    return lambda attempt: plugin.ask(attempt, duration, usual(attempt))


@cache
def gate(name: str) -> Gate:
    """A gate: given an `Asking` it answers `Admit()`, `Hold(until, reason)` or `Reject(reason)`."""
    plugin = Plugin("gate", name)

    admitted: GateAnswer = Admit()
    return lambda asking: plugin.ask(asking, _gate_answer, admitted)


@cache
def notifier(name: str) -> Plugin:
    """An async function that is called with a `Notice` for each event it is to hear of."""
    return Plugin("notifier", name)


@cache
def transport(scheme: str) -> Plugin:
    """A factory: given an address and the options of its topics it answers a `Transport`."""
    return Plugin("transport", scheme)


class Plugin:
    """One entry point: loaded when it is first asked, and never trusted."""

    def __init__(self, kind: str, name: str) -> None:
        known = installed(kind)
        if name not in known:
            hint = suggest(name, known) if known else f"no package here brings one ({GROUPS[kind]})"
            raise UsageError(f"no {kind} named {name!r} is installed; {hint}")
        self.kind, self.name = kind, name
        self._entry = known[name]
        self._function: Callable[..., Any] | None = None
        self.is_broken = False  #: it could not be loaded; importing it again for every job would not help
        self._told: set[str] = set()

    def ask(self, question: Any, read: Callable[[Any], A], otherwise: A) -> A:
        """Its answer, if it gives one that *read* accepts."""
        if self.is_broken:
            return otherwise
        try:
            return read(self._load()(question))
        # It may also try to end the process: that is not for a plug-in to decide.
        except (Exception, SystemExit) as error:
            self.failed(error)
            return otherwise

    async def notify(self, notice: object) -> bool:
        """Call a notifier; whether it returned in time and without an error."""
        try:
            call = self._load()(notice)
            if not isawaitable(call):
                raise TypeError(f"{self._entry.value} is not an async function")
            async with asyncio.timeout(NOTIFY_WITHIN):
                await call
        except (Exception, SystemExit) as error:
            self.failed(error)
            return False
        return True

    def make(self, *given: object) -> Any:
        """Call a factory and return what it makes. Raises whatever loading or calling it raises."""
        return self._load()(*given)

    def _load(self) -> Callable[..., Any]:
        if self._function is None:
            loaded = self._entry.load()
            if not callable(loaded):
                raise TypeError(f"{self._entry.value} is a {type(loaded).__name__}, not a function")
            self._function = loaded
        return self._function

    def failed(self, error: BaseException) -> None:
        """Log an *error* of this plug-in, once for each kind."""
        self.is_broken = self._function is None
        sort = type(error).__name__
        if sort in self._told:
            return
        self._told.add(sort)
        log.warning(
            "plugin.failed",
            plugin=self.name,
            kind=self.kind,
            package=self._entry.dist.name if self._entry.dist else self._entry.value,
            when="loading" if self.is_broken else "in use",
            reason=_words(error),
            instead=_INSTEAD.get(self.kind, "the default is used"),
        )


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except Exception:  # not even that can be trusted
        return type(error).__name__


def _opinion(answer: object) -> str | Retryable | Fatal | None:
    if answer is None or isinstance(answer, (str, Retryable, Fatal)):
        return answer or None
    raise TypeError(f"it answered {answer!r:.60}; it may answer a code, Retryable(…), Fatal(…) or None")


def _gate_answer(answer: object) -> GateAnswer:
    if isinstance(answer, (Admit, Hold, Reject)):
        return answer
    raise TypeError(
        f"it answered {answer!r:.60}; it may answer Admit(), Hold(until, reason) or Reject(reason)"
    )
