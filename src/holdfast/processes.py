"""Run the workers and the maintenance of an app until they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from holdfast import gc_tuning
from holdfast.engine.engine import Engine
from holdfast.engine.override_feed import follow_overrides
from holdfast.errors import UsageError
from holdfast.logging import Log
from holdfast.maintenance.dispatch import DISPATCH_EVERY, DispatchFeed
from holdfast.maintenance.statistics import STATISTICS_EVERY, StatisticsUpkeep
from holdfast.maintenance.tasks import Maintenance
from holdfast.runtime import Runtime
from holdfast.signals import reload_on_signal, stop_on_signals
from holdfast.tasks.main_guard import check_importing, check_main
from holdfast.values.validation import several, whole
from holdfast.webhooks.delivery import install as install_webhooks
from holdfast.webhooks.fanout import DISPATCH_EVERY as WEBHOOKS_EVERY
from holdfast.webhooks.fanout import Fanout
from holdfast.webhooks.notifiers import NOTIFY_EVERY, NotifierFeed
from holdfast.wiring import thread_pool
from holdfast.worker.watchdog import Watchdog
from holdfast.worker.worker import Worker

log = Log("holdfast.app")


async def run_worker(
    runtime: Runtime,
    *,
    concurrency: int | None,
    queues: Sequence[str] | None,
    maintenance: bool,
    until_idle: bool,
    handle_signals: bool,
    relay: bool,
) -> None:
    """Run jobs; see `Holdfast.run_worker`."""
    declared, settings = runtime.declared, runtime.settings
    _check_worker(runtime, concurrency, queues)
    engine = await runtime.engine()
    _install_webhooks(runtime)
    async with AsyncExitStack() as stack:
        resources = await stack.enter_async_context(declared.lifespan()) if declared.lifespan else None
        pool = thread_pool((concurrency or settings.concurrency) + 4)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        worker = Worker(
            engine,
            runtime.threads,
            pool,
            queues=queues,
            concurrency=concurrency,
            middleware=declared.middleware,
            resources=resources,
            until_idle=until_idle,
        )
        watchdog = Watchdog(worker.attempt_of)
        watchdog.start(runtime.threads)
        stack.callback(watchdog.stop)
        if handle_signals:  # the process belongs to us
            stop_on_signals(worker.stop, stack, runtime.clock, settings.grace.total_seconds())
            _reload_on_signal(runtime, stack)
            gc_tuning.freeze_imports()
        gc_tuning.raise_threshold()
        await stack.enter_async_context(following_overrides(runtime))
        _reload_policies(runtime, stack)
        if relay and declared.topics:
            delivering = asyncio.create_task(runtime.make_relay(engine).run(), name="relay")
            stack.push_async_callback(_end, delivering)
        await _run_together(worker, make_maintenance(runtime, engine) if maintenance else None)


async def run_maintenance(runtime: Runtime, *, handle_signals: bool) -> None:
    """Run maintenance and no jobs; see `Holdfast.run_maintenance`."""
    engine = await runtime.engine()
    _install_webhooks(runtime)
    async with AsyncExitStack() as stack:
        running = asyncio.create_task(make_maintenance(runtime, engine).run(), name="maintenance")
        stopping = asyncio.Event()
        stack.push_async_callback(_end, running)
        if handle_signals:
            stop_on_signals(stopping.set, stack, runtime.clock)
            _reload_on_signal(runtime, stack)
        await stack.enter_async_context(following_overrides(runtime))
        _reload_policies(runtime, stack)
        log.info("maintenance.started")
        await stopping.wait()
    log.info("maintenance.stopped")


def make_maintenance(runtime: Runtime, engine: Engine) -> Maintenance:
    """Return the maintenance tasks of this app."""
    declared = runtime.declared
    maintenance = Maintenance(engine, runtime.retention, declared.schedules)
    maintenance.add("webhooks", WEBHOOKS_EVERY, Fanout(engine).run)
    notifying = NotifierFeed(engine, lambda: declared.policies.notifiers)
    maintenance.add("notifiers", NOTIFY_EVERY, notifying.run, apart=True)
    maintenance.add("statistics", STATISTICS_EVERY, StatisticsUpkeep(engine).run, apart=True)
    if engine.broker is not None:
        maintenance.add("dispatch", DISPATCH_EVERY, DispatchFeed(engine, engine.broker).run)
    external = declared.external_tasks
    if external.hook in declared.hooks:
        maintenance.add("external_tasks", external.every, lambda: external.look(engine.store))
    maintenance.all += runtime.extensions.maintenance()
    return maintenance


def _check_worker(runtime: Runtime, concurrency: int | None, queues: Sequence[str] | None) -> None:
    tasks = runtime.declared.tasks.values()
    if concurrency is not None:
        whole("concurrency", concurrency, 1, 1_000_000)
    if queues is not None and not several("queues", queues, str, 'names, e.g. ["default"]'):
        raise UsageError("queues is empty; name those to serve, or leave it out to serve all")
    if unknown := sorted(set(queues or ()) - {task.policy.queue for task in tasks}):
        log.warning(
            "queue.unknown", queues=unknown, hint="no task is in them; jobs get there by queue= alone"
        )
    check_importing()
    if any(task.policy.execute == "process" for task in tasks):
        check_main()


def _install_webhooks(runtime: Runtime) -> None:
    declared = runtime.declared
    for task in install_webhooks(declared.tasks, declared.admission, runtime.engine, runtime):
        declared.reloader.adopt(task)


def _reload_on_signal(runtime: Runtime, stack: AsyncExitStack) -> None:
    declared = runtime.declared
    reload_on_signal(lambda: declared.reloader.reload(declared.tasks, asked=True), stack)


@asynccontextmanager
async def following_overrides(runtime: Runtime) -> AsyncIterator[None]:
    """Put overrides of policies in force inside the block whenever they have changed."""
    following = asyncio.create_task(follow_overrides(await runtime.engine()), name="overrides")
    try:
        yield
    finally:
        await _end(following)


def _reload_policies(runtime: Runtime, stack: AsyncExitStack) -> None:
    """Read the policy file again whenever it has changed."""
    declared = runtime.declared
    if declared.reloader.path is not None:
        reading = asyncio.create_task(declared.reloader.run(declared.tasks, runtime.clock), name="policies")
        stack.push_async_callback(_end, reading)


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _run_together(worker: Worker, maintenance: Maintenance | None) -> None:
    maintaining = asyncio.create_task(maintenance.run(), name="maintenance") if maintenance else None
    working = asyncio.create_task(worker.run(), name="worker")
    cancelled = False
    try:
        while not working.done():
            try:
                await asyncio.shield(working)
            except asyncio.CancelledError:
                worker.stop()  # a second call stops at once
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError
        working.result()
    finally:
        if maintaining is not None:
            await _end(maintaining)
