"""A private S3: moto's server in a thread of this process, on a free port."""

from __future__ import annotations

import logging
import re
import urllib.request
from types import TracebackType

from moto.server import ThreadedMotoServer


class S3:
    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request
        self._server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)

    def __enter__(self) -> S3:
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        self._ask("/moto-api/reset", "POST")  # its data belongs to this process, not to the server
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.stop()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that an operator would set."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def create_bucket(self, name: str) -> None:
        self._ask(f"/{name}", "PUT")

    def keys(self, bucket: str) -> list[str]:
        """Return the names of all objects in a bucket."""
        return sorted(re.findall("<Key>(.*?)</Key>", self._ask(f"/{bucket}", "GET")))

    def _ask(self, path: str, method: str) -> str:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method)) as answer:
            return str(answer.read().decode())
