"""Arguments of a call as one JSON object: the options `--args` and `--patch`."""

from __future__ import annotations

from typing import Any

from holdfast.errors import UsageError


def read_arguments(text: str, option: str = "--args") -> dict[str, Any]:
    """Return the arguments that *text*, a JSON object and the value of *option*, holds by name."""
    import msgspec

    try:
        arguments = msgspec.json.decode(text)
    except ValueError as error:
        raise UsageError(f"{option} is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise UsageError(f'{option} is an object of arguments by name, e.g. {{"file": "a.pdf"}}')
    return arguments
