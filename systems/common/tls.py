"""TLS settings for outgoing requests."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit


def trust_for(url: str) -> ssl.SSLContext | bool:
    """Return the value of httpx2's `verify` for *url*.

    Reading this machine's certificates takes 50 ms. Plain HTTP needs none, so it gets a context without any:
    a redirect to HTTPS then fails.
    """
    return urlsplit(url).scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
