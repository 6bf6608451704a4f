"""Clients for the HTTP API of Holdfast, without the engine: `Client`, and `AsyncClient` for async code.

    with Client("https://jobs.example.com", key=KEY) as client:
        job = client.enqueue("convert", {"pdf": "a.pdf"}, owner="alice")
        print(client.result(job.id, timeout="1m"))

`calls` has one function per operation of the API, `types` the request and response types, `errors` the
exceptions.
"""

from holdfast.client import calls, errors, types
from holdfast.client.async_client import AsyncClient
from holdfast.client.core import ApiResponse
from holdfast.client.event_stream import StreamEvent
from holdfast.client.retries import RequestRetries
from holdfast.client.sync_client import Client

__all__ = [
    "ApiResponse",
    "AsyncClient",
    "Client",
    "RequestRetries",
    "StreamEvent",
    "calls",
    "errors",
    "types",
]
