"""The front door for programs that are not Python: an HTTP API under /api/v1, as an ASGI app of its own or mounted in one.

FastAPI is imported when `api` is called, never by `import holdfast`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from holdfast.app import Holdfast

__all__ = ["api"]


def api(app: Holdfast, **options: Any) -> FastAPI:
    """The HTTP API of *app*: run it by any ASGI server, or mount it: `site.mount("/holdfast", api(app))`.

    Options: *rate*, how often one owner may call ("6000/min"; None: as often as it likes); *without_key*, whether calls
    from this machine need a key: "never" lets nobody in without one (the default), "until_first" lets this machine in
    while no key exists, "loopback" lets it in always. The last two are for servers that listen on loopback only.
    """
    try:
        from holdfast.http.building import build
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("holdfast"):
            raise
        raise UsageError(f"the HTTP API needs {error.name}; pip install 'holdfast[server]'") from None
    return build(app, **options)
