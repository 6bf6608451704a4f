"""Plug-ins (E19): classifiers, backoffs, gates, notifiers and transports that other packages provide.

They are named in `holdfast.toml`, a transport by the address of a topic, and loaded on first use. If one
cannot be loaded, raises or returns an invalid value, this is logged once per type of error and Holdfast
continues as without it: a plug-in may be useless, but it cannot lose a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import Fatal, Retryable, UsageError
from holdfast.logging import Log
from holdfast.resilience.backoff import Curve, exponential
from holdfast.resilience.classify import Rule
from holdfast.resilience.gates import Admit, Gate, GateAnswer, Hold, Reject
from holdfast.values.duration import duration
from holdfast.values.suggest import suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

A = TypeVar("A")

#: The kinds of plug-ins and their entry point groups.
GROUPS = {
    "classifier": "holdfast.classifiers",
    "backoff": "holdfast.backoffs",
    "gate": "holdfast.gates",
    "notifier": "holdfast.notifiers",
    "transport": "holdfast.transports",
}

#: What happens when a plug-in of this kind fails. For the other kinds the default is used.
_INSTEAD = {"notifier": "it is called again", "transport": "its messages wait"}
#: How long a notifier may take for one event, in seconds.
NOTIFY_WITHIN = 10.0

log = Log("holdfast.plugins")


def installed(kind: str) -> dict[str, EntryPoint]:
    """Return the entry points of the plug-ins of this *kind* by name, without loading them.

    If two have the same name, always the same one is returned.
    """
    from importlib.metadata import entry_points  # slow to import, and few programs have plug-ins

    entries = sorted(entry_points(group=GROUPS[kind]), key=lambda entry: entry.value, reverse=True)
    return {entry.name: entry for entry in entries}


@cache
def classifier(name: str) -> Rule:
    """Return the classifier *name*: a function from an exception to a code, `Retryable`, `Fatal` or None."""
    plugin = Plugin("classifier", name)
    return lambda error: plugin.ask(error, _opinion, None)


@cache
def backoff(name: str) -> Curve:
    """Return the backoff *name*: a function from the number of the failed attempt, from 1, to a delay."""
    plugin = Plugin("backoff", name)
    default = exponential("5s")
    return lambda attempt: plugin.ask(attempt, duration, default(attempt))


@cache
def gate(name: str) -> Gate:
    """Return the gate *name*: a function from a `GateRequest` to an `Admit`, a `Hold` or a `Reject`."""
    plugin = Plugin("gate", name)

    admitted: GateAnswer = Admit()
    return lambda request: plugin.ask(request, _gate_answer, admitted)


@cache
def notifier(name: str) -> Plugin:
    """Return the notifier *name*: an async function that is called with a `Notice` for each chosen event."""
    return Plugin("notifier", name)


@cache
def transport(scheme: str) -> Plugin:
    """Return the transport of *scheme*: a function from an address and topic options to a `Transport`."""
    return Plugin("transport", scheme)


class Plugin:
    """One plug-in: loaded on first use, and never trusted to work.

    Raises:
        UsageError: No plug-in of this name is installed.
    """

    def __init__(self, kind: str, name: str) -> None:
        installed_plugins = installed(kind)
        if name not in installed_plugins:
            hint = (
                suggest(name, installed_plugins)
                if installed_plugins
                else f"no installed package provides one ({GROUPS[kind]})"
            )
            raise UsageError(f"no {kind} named {name!r} is installed; {hint}")
        self.kind, self.name = kind, name
        self._entry = installed_plugins[name]
        self._function: Callable[..., Any] | None = None
        self.is_broken = False  #: it could not be loaded; importing it again for every job would not help
        self._logged: set[str] = set()

    def ask(self, question: Any, read: Callable[[Any], A], otherwise: A) -> A:
        """Call the plug-in and return its answer through *read*, or *otherwise* if either raises."""
        if self.is_broken:
            return otherwise
        try:
            return read(self._load()(question))
        # A plug-in must not be able to end the process either.
        except (Exception, SystemExit) as error:
            self.failed(error)
            return otherwise

    async def notify(self, notice: object) -> bool:
        """Call a notifier. Return whether it returned in time and without an error."""
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
        """Call a factory and return its result. Raises whatever loading or calling it raises."""
        return self._load()(*given)

    def _load(self) -> Callable[..., Any]:
        if self._function is None:
            loaded = self._entry.load()
            if not callable(loaded):
                raise TypeError(f"{self._entry.value} is a {type(loaded).__name__}, not a function")
            self._function = loaded
        return self._function

    def failed(self, error: BaseException) -> None:
        """Log an *error* of this plug-in, once per exception type."""
        self.is_broken = self._function is None
        error_type = type(error).__name__
        if error_type in self._logged:
            return
        self._logged.add(error_type)
        log.warning(
            "plugin.failed",
            plugin=self.name,
            kind=self.kind,
            package=self._entry.dist.name if self._entry.dist else self._entry.value,
            when="loading" if self.is_broken else "in use",
            reason=_error_text(error),
            instead=_INSTEAD.get(self.kind, "the default is used"),
        )


def _error_text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except Exception:  # its `__str__` may raise
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
