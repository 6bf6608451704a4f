"""The arguments of a call as one JSON object: the option `--args`."""

from __future__ import annotations

from typing import Any

from holdfast.errors import UsageError


def read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments that *text*, a JSON object, holds by name."""
    import msgspec

    try:
        arguments = msgspec.json.decode(text)
    except ValueError as error:
        raise UsageError(f"--args is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise UsageError('--args is an object of all arguments by name, e.g. {"file": "a.pdf"}')
    return arguments
