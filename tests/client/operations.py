"""Every operation of the API with what to give it: one table for all clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from holdfast.client import calls
from tests.client.world import WAIT, Live


@dataclass
class Use:
    """*path* are its positional arguments, *given* its body or query."""

    name: str
    path: tuple[str, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)


def uses(client: Any, live: Live) -> list[Use]:
    """All of them once, in an order in which each is answered. *client* prepares what they need, *live* what it cannot."""

    def waiting() -> str:
        return str(client.enqueue("convert", {"pdf": "w"}, delay="1d", owner="uma").id)

    def dead() -> str:
        job = client.enqueue("refuse", {"why": "no"})
        client.wait(job.id, timeout=WAIT)
        return str(job.id)

    done, letter = client.enqueue("convert", {"pdf": "d"}).id, dead()
    client.wait(done, timeout=WAIT)
    key = client.send(calls.create_key(role="viewer")).id
    other = client.send(calls.create_key(role="viewer")).id
    operation = client.operate("cancel", {"owner": f"nobody-{uuid4()}"}).id
    hook = client.send(calls.create_webhook(url="http://127.0.0.1:9999/x")).id
    last = client.send(calls.create_webhook(url="http://127.0.0.1:9999/y")).id
    message = str(uuid4())
    live.do(live.app.outbox.publish("orders", {"number": 7}, id=message))
    new = {"task": "convert", "args": {"pdf": "a"}}
    return [
        Use("enqueue_job", given=new),
        Use("enqueue_jobs", given={"jobs": [new, new]}),
        Use("list_jobs", given={"state": ["queued", "complete"], "limit": 2}),
        Use("get_job", (done,), {"include": "args"}),
        Use("get_job_events", (done,), {"limit": 1}),
        Use("get_job_attempts", (done,)),
        Use("get_job_late_results", (done,)),
        Use("get_job_result", (done,)),
        Use("explain_job", (waiting(),)),
        Use("retry_job", (waiting(),)),
        Use("cancel_job", (waiting(),), {"reason": "tests"}),
        Use("begin_operation", given={"action": "retry", "filter": {"owner": "nobody"}, "dry_run": True}),
        Use("get_forecast", given={"within": "2h", "bucket": "10m"}),
        Use("list_operations", given={"limit": 1}),
        Use("get_operation", (operation,)),
        Use("cancel_operation", (operation,)),
        Use("list_dead_letters", given={"task": "refuse"}),
        Use("list_dead_letter_groups", given={"code": ["REFUSED"]}),
        Use("get_dead_letter", (letter,)),
        Use("redrive_dead_letter", (letter,)),
        Use("discard_dead_letter", (dead(),), {"reason": "tests"}),
        Use("list_queues"),
        Use("list_lanes"),
        Use("list_holds"),
        Use("pause_scope", given={"kind": "task", "name": "refuse", "duration": "1m"}),
        Use("resume_scope", given={"kind": "task", "name": "refuse"}),
        Use("pause_queue", ("default",), {"duration": "1ms"}),
        Use("resume_queue", ("default",)),
        Use("list_breakers"),
        Use("open_breaker", ("gateway",), {"duration": "1m", "reason": "tests"}),
        Use("try_breaker", ("gateway",)),
        Use("close_breaker", ("gateway",)),
        Use("get_breaker", ("gateway",)),
        Use("set_policy", given={"key": "tasks.convert.cost", "value": 2, "reason": "tests", "lasts": "1h"}),
        Use("list_policies", given={"under": "tasks.convert"}),
        Use("list_overrides"),
        Use("list_override_history", given={"key": "tasks.convert.cost", "limit": 2}),
        Use("export_overrides"),
        Use("unset_policy", given={"key": "tasks.convert.cost"}),
        Use("list_schedules"),
        Use("run_schedule", ("nightly",)),
        Use("pause_schedule", ("nightly",)),
        Use("resume_schedule", ("nightly",)),
        Use("forget_schedule", ("nightly",)),
        Use("list_owners"),
        Use("get_owner", ("uma",)),
        Use("list_extensions"),
        Use("list_workers"),
        Use("get_overview", given={"since": "2h"}),
        Use("get_series", given={"metric": "failed", "by": "task"}),
        Use("get_breakdown", given={"by": "queue"}),
        Use("get_workers_status"),
        Use("list_stuck_jobs", given={"limit": 5}),
        Use("search_stuck_jobs", given={"longer_than": "1h"}),
        Use("process_stuck_jobs", given={"longer_than": "1h"}),
        Use("pause_retry_scheduler", given={"types": ["STUCK_JOBS"], "duration": "1ms"}),
        Use("resume_retry_scheduler", given={"types": ["STUCK_JOBS"]}),
        Use("list_keys"),
        Use("create_key", given={"role": "owner", "owner": "uma", "lasts": "1h"}),
        Use("rotate_key", (key,), {"overlap": "1s"}),
        Use("revoke_key", (other,)),
        Use("get_session"),
        Use("open_session", given={"key": client.send(calls.create_key(role="viewer")).secret}),
        Use("close_session"),
        Use("list_webhooks"),
        Use("create_webhook", given={"url": "http://127.0.0.1:9999/z", "events": ["late_result"]}),
        Use("create_inbound_webhook", given={"owner": "uma"}),
        Use("get_webhook", (hook,)),
        Use("disable_webhook", (hook,)),
        Use("enable_webhook", (hook,)),
        Use("rotate_webhook_secret", (hook,), {"keep_old": True}),
        Use("retire_webhook_secret", (hook,)),
        Use("test_webhook", (hook,)),
        Use("replay_webhook", (hook,), {"after": "0", "before": "1"}),
        Use("remove_webhook", (last,)),
        Use("remove_webhook", (hook,)),
        Use("list_topics"),
        Use("list_messages", given={"topic": "orders", "state": "waiting", "limit": 1}),
        Use("get_message", (message,)),
        Use("park_message", (message,), {"reason": "tests"}),
        Use("replay_message", (message,)),
        Use("park_message", (message,), {"reason": "tests"}),
        Use("discard_message", (message,), {"reason": "tests"}),
        Use("get_liveness"),
        Use("get_readiness"),
        Use("get_health"),
        Use("get_metrics"),
        Use("get_openapi"),
    ]
