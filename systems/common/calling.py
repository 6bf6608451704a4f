"""Requests that go out."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit


def certificates(url: str) -> ssl.SSLContext | bool:
    """What to trust for *url*, for httpx2's `verify`. Reading this machine's certificates takes 50 ms: plain HTTP needs none,
    and is given a context that trusts nobody."""
    return urlsplit(url).scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
