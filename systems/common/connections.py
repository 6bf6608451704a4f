"""Close or reset a request's connection from an ASGI application, which has no standard way to do so."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from holdfast.server import connection_of


def cut(scope: MutableMapping[str, Any]) -> None:
    """Reset the connection of a request, as a crash of the machine or a firewall would."""
    connection = connection_of(scope)
    if connection is not None:
        connection.reset()


def close(scope: MutableMapping[str, Any]) -> None:
    """Close the connection of a request once everything written has been sent."""
    connection = connection_of(scope)
    if connection is not None and connection.transport is not None:
        connection.transport.close()
