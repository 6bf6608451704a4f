"""Tests in several processes, forked when all of them are collected: imports and collection are done once.

    pytest ──collect──▶ fork ──groups of tests──▶ a hand: runs them in their order
                          ▲                          │
                          └────────reports───────────┘

A group is run by one hand, so its tests share the servers that the first of them has started. A hand that dies fails the
test it was at; another takes over what it had before it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

#: A test ends its fixtures by what comes next, so that must be known before it begins.
AHEAD = 2


@dataclass
class Hand:
    """A process that runs tests, as it is seen from here."""

    pid: int
    line: Connection[Any, Any]
    tests: deque[int] = field(default_factory=deque)  #: given to it and not reported, in their order
    told_all: bool = False  #: that no more will come

    def give(self, tests: Iterable[int]) -> None:
        self.tests.extend(tests)
        self.tell(list(tests))

    def tell(self, order: list[int] | None) -> None:
        try:
            self.line.send(order)
        except OSError:
            pass  # it has died: its line has an end, too, where it is noticed


class Crew:
    """Runs all tests of a session: `groups` of their numbers, each group by one process."""

    def __init__(self, session: pytest.Session, groups: Iterable[list[int]]) -> None:
        self._session = session
        self._hook = session.config.hook
        self._waiting = deque(groups)
        self._hands: dict[Connection[Any, Any], Hand] = {}

    def run(self, size: int) -> None:
        # One folder for all, which is removed at the end: else each process makes its own.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for _ in range(min(size, len(self._waiting))):
                self._supply(self._hire())
            while self._hands:
                for line in wait(list(self._hands)):
                    self._hear(self._hands[line])  # type: ignore[index]
        finally:
            for hand in self._hands.values():
                hand.line.close()  # it ends behind the test that it is at
            for hand in self._hands.values():
                os.waitpid(hand.pid, 0)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _hire(self) -> Hand:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for line in (ours, *self._hands):
                line.close()
            _work(self._session, theirs)
        theirs.close()
        self._hands[ours] = hand = Hand(pid, ours)
        return hand

    def _supply(self, hand: Hand) -> None:
        while self._waiting and len(hand.tests) < AHEAD:
            hand.give(self._waiting.popleft())
        if not self._waiting and not hand.told_all:
            hand.told_all = True
            hand.tell([])

    def _hear(self, hand: Hand) -> None:
        try:
            reports = hand.line.recv()
        except (EOFError, OSError):
            self._part_from(hand)
            return
        if hand.tests:  # else it was stopped at this one
            hand.tests.popleft()
        for report in reports:
            self._log(self._hook.pytest_report_from_serializable(config=self._session.config, data=report))
        self._supply(hand)

    def _part_from(self, hand: Hand) -> None:
        del self._hands[hand.line]
        hand.line.close()
        _, status = os.waitpid(hand.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if hand.tests:
            self._log(_died(self._session.items[hand.tests.popleft()], _how(code)))
        elif code:
            raise RuntimeError(f"a process of the tests has died when its tests had ended ({_how(code)})")
        if hand.tests:
            self._waiting.appendleft(list(hand.tests))
            self._supply(self._hire())

    def _log(self, report: pytest.TestReport) -> None:
        self._hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail or self._session.shouldstop:
            self._waiting.clear()
            for hand in self._hands.values():
                hand.tests.clear()
                hand.tell(None)


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _died(item: pytest.Item, how: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"the process of this test has died ({how})",
        when="call",
    )


# -- a hand's own life -----------------------------------------------------------------------------------------------------
class _Reports:
    """What a test reports, until it is sent; in the place of what would tell it to the terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._kept: list[dict[str, Any]] = []
        self._tw = config.get_terminal_writer()  # others write there, from under the same name

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._kept.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def take(self) -> list[dict[str, Any]]:
        taken, self._kept = self._kept, []
        return taken


def _work(session: pytest.Session, line: Connection[Any, Any]) -> NoReturn:
    code = 1
    try:
        _run(session, line)
        code = 0
    except (KeyboardInterrupt, BrokenPipeError):
        pass  # the tests are stopped, or nobody is there to hear of them
    except BaseException as error:
        # A fixture that was stopped halfway may complain when it is torn down.
        if not isinstance(error.__context__, KeyboardInterrupt):
            traceback.print_exc()
    finally:
        # What is in memory is not taken apart: that takes seconds, with everybody waiting.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(session: pytest.Session, line: Connection[Any, Any]) -> None:
    plugins = session.config.pluginmanager
    reports = _Reports(session.config)
    plugins.unregister(name="terminalreporter")
    plugins.register(reports, "terminalreporter")
    if (capture := plugins.getplugin("capturemanager")) is not None:  # its files are shared with all others
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    try:
        for item, following in _in_order(session.items, line):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            line.send(reports.take())
    finally:
        try:
            session._setupstate.teardown_exact(None)
        finally:
            session.config.hook.pytest_unconfigure(config=session.config)


def _in_order(
    items: list[pytest.Item], line: Connection[Any, Any]
) -> Iterable[tuple[pytest.Item, pytest.Item | None]]:
    """Each test that is given to this process, with the one after it."""
    given: deque[int] = deque()
    more = True
    while True:
        while line.poll() or (more and len(given) < AHEAD):
            try:
                order = line.recv()
            except EOFError:
                order = None
            if order is None:
                return
            given += order
            more = bool(order)
        if not given:
            return
        item = items[given.popleft()]
        yield item, items[given[0]] if given else None
