"""OpenAPI links: the requests that the values of a response make possible. Clients and explorers can follow them, and tests do.

A list has a link to its next page only, because it may be empty.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Link(NamedTuple):
    status: str
    found: str  #: where the value is in the response, as a JSON pointer
    parameter: str  #: the parameter of those requests
    leads_to: tuple[str, ...]


_OF_JOB = (
    "get_job",
    "get_job_events",
    "get_job_attempts",
    "get_job_late_results",
    "get_job_result",
    "explain_job",
    "cancel_job",
    "retry_job",
)
_OF_OPERATION = ("get_operation", "cancel_operation")
_OF_KEY = ("rotate_key", "revoke_key")
_OF_INBOUND = (
    "get_webhook",
    "rotate_webhook_secret",
    "retire_webhook_secret",
    "disable_webhook",
    "enable_webhook",
    "remove_webhook",
)
_OF_WEBHOOK = (*_OF_INBOUND, "test_webhook", "replay_webhook")

LINKS: dict[str, tuple[Link, ...]] = {
    "enqueue_job": (Link("201", "/id", "job_id", _OF_JOB), Link("200", "/id", "job_id", ("get_job",))),
    "enqueue_jobs": (Link("201", "/jobs/0/id", "job_id", _OF_JOB),),
    "list_jobs": (Link("200", "/next", "cursor", ("list_jobs",)),),
    "get_job_attempts": (Link("200", "/next", "cursor", ("get_job_attempts",)),),
    "get_job_late_results": (Link("200", "/next", "cursor", ("get_job_late_results",)),),
    "retry_job": (Link("200", "/id", "job_id", ("get_job", "cancel_job")),),
    "cancel_job": (Link("200", "/id", "job_id", ("get_job", "retry_job")),),
    "list_queues": (Link("200", "/next", "cursor", ("list_queues",)),),
    "list_lanes": (Link("200", "/next", "cursor", ("list_lanes",)),),
    "list_dead_letters": (Link("200", "/next", "cursor", ("list_dead_letters",)),),
    "redrive_dead_letter": (Link("200", "/id", "job_id", ("get_job",)),),
    "begin_operation": (Link("202", "/id", "operation_id", _OF_OPERATION),),
    "create_key": (Link("201", "/id", "key_id", _OF_KEY),),
    "create_webhook": (Link("201", "/id", "webhook_id", _OF_WEBHOOK),),
    "create_inbound_webhook": (Link("201", "/id", "webhook_id", _OF_INBOUND),),
}


def add_links(operation: dict[str, Any]) -> None:
    """Add links to the responses of an *operation* of the document."""
    for link in LINKS.get(operation["operationId"], ()):
        links = operation["responses"][link.status].setdefault("links", {})
        for target in link.leads_to:
            value = f"$response.body#{link.found}"
            links[target] = {"operationId": target, "parameters": {link.parameter: value}}
