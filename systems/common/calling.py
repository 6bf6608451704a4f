"""Requests that go out."""

from __future__ import annotations

import ssl


def certificates(url: str) -> ssl.SSLContext | bool:
    """What to trust for *url*, for httpx2's `verify`. Reading this machine's certificates takes 50 ms: plain HTTP needs none,
    and is given a context that trusts nobody."""
    return url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
