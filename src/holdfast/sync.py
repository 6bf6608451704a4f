"""`app.sync`: the namespaces of an app for code without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.engine.breakers import Breakers
from holdfast.engine.dead_letters import DeadLetters
from holdfast.engine.events import Events
from holdfast.engine.external import ExternalJobs
from holdfast.engine.jobs import Jobs
from holdfast.engine.keys import Keys
from holdfast.engine.operations import Operations
from holdfast.engine.policies import PolicyOverrides
from holdfast.engine.queues import Queues
from holdfast.engine.schedules import Schedules
from holdfast.outbox.verbs import Outbox
from holdfast.portal import InPortal, Run, SyncSource
from holdfast.statistics.verbs import Statistics
from holdfast.webhooks.verbs import Webhooks

P = ParamSpec("P")
T = TypeVar("T")


class SyncNamespace:
    """The verbs of a namespace as plain calls."""

    def __init__(self, verbs: Any, run: Run) -> None:
        self._verbs, self._run = verbs, run


def plain(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncNamespace, P], T]:
    """Return the method of a `SyncNamespace` that calls an async verb and waits for its answer."""

    @wraps(verb)
    def call(self: SyncNamespace, /, *args: P.args, **options: P.kwargs) -> T:
        return self._run(verb(self._verbs, *args, **options))

    return call


def direct(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[SyncNamespace, P], T]:
    """Return the method of a `SyncNamespace` that calls a sync verb.

    It runs in the thread of the caller, as the connection that may be given to it needs.
    """

    @wraps(verb)
    def call(self: SyncNamespace, /, *args: P.args, **options: P.kwargs) -> T:
        return verb(self._verbs, *args, **options)

    return call


class SyncJobs(SyncNamespace):
    """`Jobs` for code without an event loop."""

    get = plain(Jobs.get)
    list = plain(Jobs.list)
    count = plain(Jobs.count)
    counts = plain(Jobs.counts)
    wait = plain(Jobs.wait)
    result = plain(Jobs.result)
    explain = plain(Jobs.explain)
    attempts = plain(Jobs.attempts)
    late_results = plain(Jobs.late_results)
    artifacts = plain(Jobs.artifacts)
    read_artifact = plain(Jobs.read_artifact)
    retry = plain(Jobs.retry)
    cancel = plain(Jobs.cancel)
    stuck = plain(Jobs.stuck)
    reclaim = plain(Jobs.reclaim)


class SyncDeadLetters(SyncNamespace):
    """`DeadLetters` for code without an event loop."""

    list = plain(DeadLetters.list)
    count = plain(DeadLetters.count)
    groups = plain(DeadLetters.groups)
    redrive = plain(DeadLetters.redrive)
    redrive_one = plain(DeadLetters.redrive_one)
    discard = plain(DeadLetters.discard)
    discard_one = plain(DeadLetters.discard_one)


class SyncQueues(SyncNamespace):
    """`Queues` for code without an event loop."""

    list = plain(Queues.list)
    lanes = plain(Queues.lanes)
    workers = plain(Queues.workers)
    forecast = plain(Queues.forecast)
    holds = plain(Queues.holds)
    owners = plain(Queues.owners)
    owner = plain(Queues.owner)
    pause = plain(Queues.pause)
    resume = plain(Queues.resume)


class SyncBreakers(SyncNamespace):
    """`Breakers` for code without an event loop."""

    list = plain(Breakers.list)
    open = plain(Breakers.open)
    close = plain(Breakers.close)
    try_ = plain(Breakers.try_)


class SyncSchedules(SyncNamespace):
    """`Schedules` for code without an event loop."""

    list = plain(Schedules.list)
    run = plain(Schedules.run)
    pause = plain(Schedules.pause)
    resume = plain(Schedules.resume)
    forget = plain(Schedules.forget)


class SyncOutbox(SyncNamespace):
    """`Outbox` for code without an event loop."""

    publish = direct(Outbox.publish_sync)
    list = plain(Outbox.list)
    get = plain(Outbox.get)
    replay = plain(Outbox.replay)
    replay_many = plain(Outbox.replay_many)
    park = plain(Outbox.park)
    discard = plain(Outbox.discard)
    lags = plain(Outbox.lags)


class SyncWebhooks(SyncNamespace):
    """`Webhooks` for code without an event loop."""

    create = plain(Webhooks.create)
    create_inbound = plain(Webhooks.create_inbound)
    list = plain(Webhooks.list)
    get = plain(Webhooks.get)
    rotate_secret = plain(Webhooks.rotate_secret)
    retire_secret = plain(Webhooks.retire_secret)
    enable = plain(Webhooks.enable)
    disable = plain(Webhooks.disable)
    remove = plain(Webhooks.remove)
    test = plain(Webhooks.test)
    replay = plain(Webhooks.replay)
    receive = plain(Webhooks.receive)
    tested_by = plain(Webhooks.tested_by)


class SyncKeys(SyncNamespace):
    """`Keys` for code without an event loop."""

    create = plain(Keys.create)
    list = plain(Keys.list)
    find = plain(Keys.find)
    mark_used = plain(Keys.mark_used)
    revoke = plain(Keys.revoke)
    rotate = plain(Keys.rotate)


class SyncOperations(SyncNamespace):
    """`Operations` for code without an event loop."""

    begin = plain(Operations.begin)
    preview = plain(Operations.preview)
    list = plain(Operations.list)
    get = plain(Operations.get)
    cancel = plain(Operations.cancel)
    purge = plain(Operations.purge)


class SyncEvents(SyncNamespace):
    """`Events` for code without an event loop."""

    list = plain(Events.list)
    newest = plain(Events.newest)
    note = plain(Events.note)


class SyncPolicyOverrides(SyncNamespace):
    """`PolicyOverrides` for code without an event loop."""

    set = plain(PolicyOverrides.set)
    unset = plain(PolicyOverrides.unset)
    list = plain(PolicyOverrides.list)
    history = plain(PolicyOverrides.history)
    in_force = plain(PolicyOverrides.in_force)
    export = plain(PolicyOverrides.export)


class SyncExternalJobs(SyncNamespace):
    """`ExternalJobs` for code without an event loop."""

    begin = plain(ExternalJobs.begin)
    end = plain(ExternalJobs.end)
    refuse = plain(ExternalJobs.refuse)


class SyncStatistics(SyncNamespace):
    """`Statistics` for code without an event loop."""

    overview = plain(Statistics.overview)
    series = plain(Statistics.series)
    breakdown = plain(Statistics.breakdown)
    rebuild = plain(Statistics.rebuild)


class SyncVerbs:
    """The namespaces of an app as plain calls. An event loop in a thread of its own runs them."""

    def __init__(self, app: SyncSource) -> None:
        self._app = app
        source, run = InPortal(app), app.run_sync
        self.jobs = SyncJobs(Jobs(source), run)
        self.dead_letters = SyncDeadLetters(DeadLetters(source), run)
        self.queues = SyncQueues(Queues(source), run)
        self.breakers = SyncBreakers(Breakers(source), run)
        self.schedules = SyncSchedules(Schedules(source), run)
        self.outbox = SyncOutbox(Outbox(source), run)
        self.webhooks = SyncWebhooks(Webhooks(source), run)
        self.keys = SyncKeys(Keys(source), run)
        self.operations = SyncOperations(Operations(source), run)
        self.events = SyncEvents(Events(source), run)
        self.policies = SyncPolicyOverrides(PolicyOverrides(source), run)
        self.external = SyncExternalJobs(ExternalJobs(source), run)
        self.stats = SyncStatistics(Statistics(source), run)

    def close(self) -> None:
        """End the thread and the connections that plain calls have opened, once no other thread uses them.

        The next call opens them again. Without this they end with the app or the process.
        """
        self._app.close_sync()
