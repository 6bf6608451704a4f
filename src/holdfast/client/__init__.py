"""The HTTP API of Holdfast from Python, without the engine: `Client` for plain code, `AsyncClient` for async code.

    with Client("https://jobs.example.com", key=KEY) as client:
        job = client.enqueue("convert", {"pdf": "a.pdf"}, owner="alice")
        print(client.result(job.id, timeout="1m"))

`calls` has one function for each operation of the API, `shapes` what is asked and answered, `errors` what is raised.
"""

from holdfast.client import calls, errors, shapes
from holdfast.client.asynchronous import AsyncClient
from holdfast.client.core import Answer
from holdfast.client.eventstream import StreamEvent
from holdfast.client.repeating import Patience
from holdfast.client.sync import Client

__all__ = ["Answer", "AsyncClient", "Client", "Patience", "StreamEvent", "calls", "errors", "shapes"]
